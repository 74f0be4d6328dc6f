class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[16, 3, 3, 3]", primals_3: "f32[4, 3, 32, 32]", primals_7: "f32[16]", primals_9: "f32[16, 16, 3, 3]", primals_11: "f32[10, 1024]", convolution: "f32[4, 16, 32, 32]", squeeze_1: "f32[16]", relu: "f32[4, 16, 32, 32]", getitem_3: "i8[4, 16, 8, 8]", view: "f32[4, 1024]", le: "b8[4, 16, 32, 32]", unsqueeze_6: "f32[1, 16, 1, 1]", tangents_1: "f32[4, 10]"):
        # File: /tmp/mk_cuda.py:12 in forward, code: y=torch.relu(s.bn(s.c(x))); y=torch.relu(s.e(y)+y); return s.l(nn.functional.max_pool2d(y,4).flatten(1))
        permute: "f32[1024, 10]" = torch.ops.aten.permute.default(primals_11, [1, 0]);  primals_11 = None
        permute_1: "f32[10, 1024]" = torch.ops.aten.permute.default(permute, [1, 0]);  permute = None
        mm: "f32[4, 1024]" = torch.ops.aten.mm.default(tangents_1, permute_1);  permute_1 = None
        permute_2: "f32[10, 4]" = torch.ops.aten.permute.default(tangents_1, [1, 0])
        mm_1: "f32[10, 1024]" = torch.ops.aten.mm.default(permute_2, view);  permute_2 = view = None
        sum_1: "f32[1, 10]" = torch.ops.aten.sum.dim_IntList(tangents_1, [0], True);  tangents_1 = None
        view_1: "f32[10]" = torch.ops.aten.view.default(sum_1, [10]);  sum_1 = None
        view_2: "f32[4, 16, 8, 8]" = torch.ops.aten.view.default(mm, [4, 16, 8, 8]);  mm = None
        full_default: "f32[64, 1024]" = torch.ops.aten.full.default([64, 1024], 0, dtype = torch.float32, layout = torch.strided, device = device(type='cuda', index=0), pin_memory = False)
        view_3: "f32[64, 64]" = torch.ops.aten.view.default(view_2, [64, 64]);  view_2 = None
        _low_memory_max_pool_offsets_to_indices: "i64[4, 16, 8, 8]" = torch.ops.prims._low_memory_max_pool_offsets_to_indices.default(getitem_3, [4, 4], [32, 32], [4, 4], [0, 0], [1, 1]);  getitem_3 = None
        view_4: "i64[64, 64]" = torch.ops.aten.view.default(_low_memory_max_pool_offsets_to_indices, [64, 64]);  _low_memory_max_pool_offsets_to_indices = None
        scatter_add: "f32[64, 1024]" = torch.ops.aten.scatter_add.default(full_default, 1, view_4, view_3);  full_default = view_4 = view_3 = None
        view_5: "f32[4, 16, 32, 32]" = torch.ops.aten.view.default(scatter_add, [4, 16, 32, 32]);  scatter_add = None
        full_default_1: "f32[]" = torch.ops.aten.full.default([], 0.0, dtype = torch.float32, layout = torch.strided, device = device(type='cuda', index=0), pin_memory = False)
        where: "f32[4, 16, 32, 32]" = torch.ops.aten.where.self(le, full_default_1, view_5);  le = view_5 = None
        sum_2: "f32[16]" = torch.ops.aten.sum.dim_IntList(where, [0, 2, 3])
        convolution_backward = torch.ops.aten.convolution_backward.default(where, relu, primals_9, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]);  primals_9 = None
        getitem_4: "f32[4, 16, 32, 32]" = convolution_backward[0]
        getitem_5: "f32[16, 16, 3, 3]" = convolution_backward[1];  convolution_backward = None
        add_6: "f32[4, 16, 32, 32]" = torch.ops.aten.add.Tensor(where, getitem_4);  where = getitem_4 = None
        le_1: "b8[4, 16, 32, 32]" = torch.ops.aten.le.Scalar(relu, 0);  relu = None
        where_1: "f32[4, 16, 32, 32]" = torch.ops.aten.where.self(le_1, full_default_1, add_6);  le_1 = full_default_1 = add_6 = None
        sum_3: "f32[16]" = torch.ops.aten.sum.dim_IntList(where_1, [0, 2, 3])
        sub_1: "f32[4, 16, 32, 32]" = torch.ops.aten.sub.Tensor(convolution, unsqueeze_6);  convolution = unsqueeze_6 = None
        mul_7: "f32[4, 16, 32, 32]" = torch.ops.aten.mul.Tensor(where_1, sub_1)
        sum_4: "f32[16]" = torch.ops.aten.sum.dim_IntList(mul_7, [0, 2, 3]);  mul_7 = None
        mul_8: "f32[16]" = torch.ops.aten.mul.Tensor(sum_3, 0.000244140625)
        unsqueeze_7: "f32[1, 16]" = torch.ops.aten.unsqueeze.default(mul_8, 0);  mul_8 = None
        unsqueeze_8: "f32[1, 16, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze_7, 2);  unsqueeze_7 = None
        unsqueeze_9: "f32[1, 16, 1, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze_8, 3);  unsqueeze_8 = None
        mul_9: "f32[16]" = torch.ops.aten.mul.Tensor(sum_4, 0.000244140625)
        mul_10: "f32[16]" = torch.ops.aten.mul.Tensor(squeeze_1, squeeze_1)
        mul_11: "f32[16]" = torch.ops.aten.mul.Tensor(mul_9, mul_10);  mul_9 = mul_10 = None
        unsqueeze_10: "f32[1, 16]" = torch.ops.aten.unsqueeze.default(mul_11, 0);  mul_11 = None
        unsqueeze_11: "f32[1, 16, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze_10, 2);  unsqueeze_10 = None
        unsqueeze_12: "f32[1, 16, 1, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze_11, 3);  unsqueeze_11 = None
        mul_12: "f32[16]" = torch.ops.aten.mul.Tensor(squeeze_1, primals_7);  primals_7 = None
        unsqueeze_13: "f32[1, 16]" = torch.ops.aten.unsqueeze.default(mul_12, 0);  mul_12 = None
        unsqueeze_14: "f32[1, 16, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze_13, 2);  unsqueeze_13 = None
        unsqueeze_15: "f32[1, 16, 1, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze_14, 3);  unsqueeze_14 = None
        mul_13: "f32[4, 16, 32, 32]" = torch.ops.aten.mul.Tensor(sub_1, unsqueeze_12);  sub_1 = unsqueeze_12 = None
        sub_3: "f32[4, 16, 32, 32]" = torch.ops.aten.sub.Tensor(where_1, mul_13);  where_1 = mul_13 = None
        sub_4: "f32[4, 16, 32, 32]" = torch.ops.aten.sub.Tensor(sub_3, unsqueeze_9);  sub_3 = unsqueeze_9 = None
        mul_14: "f32[4, 16, 32, 32]" = torch.ops.aten.mul.Tensor(sub_4, unsqueeze_15);  sub_4 = unsqueeze_15 = None
        mul_15: "f32[16]" = torch.ops.aten.mul.Tensor(sum_4, squeeze_1);  sum_4 = squeeze_1 = None
        sum_5: "f32[16]" = torch.ops.aten.sum.dim_IntList(mul_14, [0, 2, 3])
        convolution_backward_1 = torch.ops.aten.convolution_backward.default(mul_14, primals_3, primals_1, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]);  mul_14 = primals_3 = primals_1 = None
        getitem_8: "f32[16, 3, 3, 3]" = convolution_backward_1[1];  convolution_backward_1 = None
        return (getitem_8, sum_5, None, None, None, None, mul_15, sum_3, getitem_5, sum_2, mm_1, view_1)
