class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[16, 3, 3, 3]", primals_2: "f32[16]", primals_3: "f32[4, 3, 32, 32]", primals_4: "i64[]", primals_5: "f32[16]", primals_6: "f32[16]", primals_7: "f32[16]", primals_8: "f32[16]", primals_9: "f32[16, 16, 3, 3]", primals_10: "f32[16]", primals_11: "f32[10, 1024]", primals_12: "f32[10]"):
        # File: /tmp/mk_cuda.py:12 in forward, code: y=torch.relu(s.bn(s.c(x))); y=torch.relu(s.e(y)+y); return s.l(nn.functional.max_pool2d(y,4).flatten(1))
        convolution: "f32[4, 16, 32, 32]" = torch.ops.aten.convolution.default(primals_3, primals_1, primals_2, [1, 1], [1, 1], [1, 1], False, [0, 0], 1);  primals_2 = None
        add: "i64[]" = torch.ops.aten.add.Tensor(primals_4, 1)
        var_mean = torch.ops.aten.var_mean.correction(convolution, [0, 2, 3], correction = 0, keepdim = True)
        getitem: "f32[1, 16, 1, 1]" = var_mean[0]
        getitem_1: "f32[1, 16, 1, 1]" = var_mean[1];  var_mean = None
        add_1: "f32[1, 16, 1, 1]" = torch.ops.aten.add.Tensor(getitem, 1e-05)
        rsqrt: "f32[1, 16, 1, 1]" = torch.ops.aten.rsqrt.default(add_1);  add_1 = None
        sub: "f32[4, 16, 32, 32]" = torch.ops.aten.sub.Tensor(convolution, getitem_1)
        mul: "f32[4, 16, 32, 32]" = torch.ops.aten.mul.Tensor(sub, rsqrt);  sub = None
        squeeze: "f32[16]" = torch.ops.aten.squeeze.dims(getitem_1, [0, 2, 3]);  getitem_1 = None
        squeeze_1: "f32[16]" = torch.ops.aten.squeeze.dims(rsqrt, [0, 2, 3]);  rsqrt = None
        mul_1: "f32[16]" = torch.ops.aten.mul.Tensor(squeeze, 0.1)
        mul_2: "f32[16]" = torch.ops.aten.mul.Tensor(primals_5, 0.9)
        add_2: "f32[16]" = torch.ops.aten.add.Tensor(mul_1, mul_2);  mul_1 = mul_2 = None
        squeeze_2: "f32[16]" = torch.ops.aten.squeeze.dims(getitem, [0, 2, 3]);  getitem = None
        mul_3: "f32[16]" = torch.ops.aten.mul.Tensor(squeeze_2, 1.0002442002442002);  squeeze_2 = None
        mul_4: "f32[16]" = torch.ops.aten.mul.Tensor(mul_3, 0.1);  mul_3 = None
        mul_5: "f32[16]" = torch.ops.aten.mul.Tensor(primals_6, 0.9)
        add_3: "f32[16]" = torch.ops.aten.add.Tensor(mul_4, mul_5);  mul_4 = mul_5 = None
        unsqueeze: "f32[16, 1]" = torch.ops.aten.unsqueeze.default(primals_7, -1)
        unsqueeze_1: "f32[16, 1, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze, -1);  unsqueeze = None
        mul_6: "f32[4, 16, 32, 32]" = torch.ops.aten.mul.Tensor(mul, unsqueeze_1);  mul = unsqueeze_1 = None
        unsqueeze_2: "f32[16, 1]" = torch.ops.aten.unsqueeze.default(primals_8, -1);  primals_8 = None
        unsqueeze_3: "f32[16, 1, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze_2, -1);  unsqueeze_2 = None
        add_4: "f32[4, 16, 32, 32]" = torch.ops.aten.add.Tensor(mul_6, unsqueeze_3);  mul_6 = unsqueeze_3 = None
        relu: "f32[4, 16, 32, 32]" = torch.ops.aten.relu.default(add_4);  add_4 = None
        convolution_1: "f32[4, 16, 32, 32]" = torch.ops.aten.convolution.default(relu, primals_9, primals_10, [1, 1], [1, 1], [1, 1], False, [0, 0], 1);  primals_10 = None
        add_5: "f32[4, 16, 32, 32]" = torch.ops.aten.add.Tensor(convolution_1, relu);  convolution_1 = None
        relu_1: "f32[4, 16, 32, 32]" = torch.ops.aten.relu.default(add_5);  add_5 = None
        _low_memory_max_pool_with_offsets = torch.ops.prims._low_memory_max_pool_with_offsets.default(relu_1, [4, 4], [4, 4], [0, 0], [1, 1], False)
        getitem_2: "f32[4, 16, 8, 8]" = _low_memory_max_pool_with_offsets[0]
        getitem_3: "i8[4, 16, 8, 8]" = _low_memory_max_pool_with_offsets[1];  _low_memory_max_pool_with_offsets = None
        view: "f32[4, 1024]" = torch.ops.aten.reshape.default(getitem_2, [4, 1024]);  getitem_2 = None
        permute: "f32[1024, 10]" = torch.ops.aten.permute.default(primals_11, [1, 0])
        addmm: "f32[4, 10]" = torch.ops.aten.addmm.default(primals_12, view, permute);  primals_12 = permute = None
        le: "b8[4, 16, 32, 32]" = torch.ops.aten.le.Scalar(relu_1, 0);  relu_1 = None
        unsqueeze_4: "f32[1, 16]" = torch.ops.aten.unsqueeze.default(squeeze, 0);  squeeze = None
        unsqueeze_5: "f32[1, 16, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze_4, 2);  unsqueeze_4 = None
        unsqueeze_6: "f32[1, 16, 1, 1]" = torch.ops.aten.unsqueeze.default(unsqueeze_5, 3);  unsqueeze_5 = None

        # No stacktrace found for following nodes
        copy_: "i64[]" = torch.ops.aten.copy_.default(primals_4, add);  primals_4 = add = copy_ = None
        copy__1: "f32[16]" = torch.ops.aten.copy_.default(primals_5, add_2);  primals_5 = add_2 = copy__1 = None
        copy__2: "f32[16]" = torch.ops.aten.copy_.default(primals_6, add_3);  primals_6 = add_3 = copy__2 = None
        return (addmm, primals_1, primals_3, primals_7, primals_9, primals_11, convolution, squeeze_1, relu, getitem_3, view, le, unsqueeze_6)
