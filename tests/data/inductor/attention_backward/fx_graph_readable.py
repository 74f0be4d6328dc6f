class GraphModule(torch.nn.Module):
    def forward(self, primals_2: "i64[2, 64]", primals_3: "bf16[128]", primals_5: "bf16[384, 128]", primals_7: "bf16[128, 128]", embedding: "bf16[2, 64, 128]", getitem_1: "f32[2, 64, 1]", rsqrt: "f32[2, 64, 1]", view: "bf16[128, 128]", getitem_2: "bf16[2, 4, 64, 32]", getitem_3: "bf16[2, 4, 64, 32]", getitem_4: "bf16[2, 4, 64, 32]", getitem_5: "bf16[2, 4, 64, 32]", getitem_6: "f32[2, 4, 64]", getitem_11: "u64[2]", getitem_12: "u64[]", tangents_1: "bf16[2, 64, 128]"):
        # File: /tmp/mk_cuda.py:20 in forward, code: return x+s.o(o.transpose(1,2).reshape(b,t,128))
        view_6: "bf16[128, 128]" = torch.ops.aten.view.default(tangents_1, [128, 128])
        permute_3: "bf16[128, 128]" = torch.ops.aten.permute.default(primals_7, [1, 0]);  primals_7 = None
        permute_4: "bf16[128, 128]" = torch.ops.aten.permute.default(permute_3, [1, 0]);  permute_3 = None
        mm: "bf16[128, 128]" = torch.ops.aten.mm.default(view_6, permute_4);  permute_4 = None
        permute_5: "bf16[128, 128]" = torch.ops.aten.permute.default(view_6, [1, 0])
        permute_2: "bf16[2, 64, 4, 32]" = torch.ops.aten.permute.default(getitem_5, [0, 2, 1, 3])
        view_3: "bf16[2, 64, 128]" = torch.ops.aten.view.default(permute_2, [2, 64, 128]);  permute_2 = None
        view_4: "bf16[128, 128]" = torch.ops.aten.view.default(view_3, [128, 128]);  view_3 = None
        mm_1: "bf16[128, 128]" = torch.ops.aten.mm.default(permute_5, view_4);  permute_5 = view_4 = None
        sum_1: "bf16[1, 128]" = torch.ops.aten.sum.dim_IntList(view_6, [0], True);  view_6 = None
        view_7: "bf16[128]" = torch.ops.aten.view.default(sum_1, [128]);  sum_1 = None
        view_8: "bf16[2, 64, 128]" = torch.ops.aten.view.default(mm, [2, 64, 128]);  mm = None
        view_9: "bf16[2, 64, 4, 32]" = torch.ops.aten.view.default(view_8, [2, 64, 4, 32]);  view_8 = None
        permute_8: "bf16[2, 4, 64, 32]" = torch.ops.aten.permute.default(view_9, [0, 2, 1, 3]);  view_9 = None

        # File: /tmp/mk_cuda.py:19 in forward, code: o=nn.functional.scaled_dot_product_attention(q,k,v,is_causal=True)
        _scaled_dot_product_flash_attention_backward = torch.ops.aten._scaled_dot_product_flash_attention_backward.default(permute_8, getitem_2, getitem_3, getitem_4, getitem_5, getitem_6, None, None, 64, 64, 0.0, True, getitem_11, getitem_12, scale = 0.17677669529663687);  permute_8 = getitem_2 = getitem_3 = getitem_4 = getitem_5 = getitem_6 = getitem_11 = getitem_12 = None
        getitem_14: "bf16[2, 4, 64, 32]" = _scaled_dot_product_flash_attention_backward[0]
        getitem_15: "bf16[2, 4, 64, 32]" = _scaled_dot_product_flash_attention_backward[1]
        getitem_16: "bf16[2, 4, 64, 32]" = _scaled_dot_product_flash_attention_backward[2];  _scaled_dot_product_flash_attention_backward = None

        # File: /tmp/mk_cuda.py:18 in forward, code: q,k,v=s.q(s.n(x)).view(b,t,3,4,32).permute(2,0,3,1,4).unbind(0)
        cat: "bf16[6, 4, 64, 32]" = torch.ops.aten.cat.default([getitem_14, getitem_15, getitem_16]);  getitem_14 = getitem_15 = getitem_16 = None
        view_10: "bf16[3, 2, 4, 64, 32]" = torch.ops.aten.view.default(cat, [3, 2, 4, 64, 32]);  cat = None
        permute_9: "bf16[2, 64, 3, 4, 32]" = torch.ops.aten.permute.default(view_10, [1, 3, 0, 2, 4]);  view_10 = None
        clone: "bf16[2, 64, 3, 4, 32]" = torch.ops.aten.clone.default(permute_9, memory_format = torch.contiguous_format);  permute_9 = None
        view_11: "bf16[2, 64, 384]" = torch.ops.aten.view.default(clone, [2, 64, 384]);  clone = None
        view_12: "bf16[128, 384]" = torch.ops.aten.view.default(view_11, [128, 384]);  view_11 = None
        permute: "bf16[128, 384]" = torch.ops.aten.permute.default(primals_5, [1, 0]);  primals_5 = None
        permute_10: "bf16[384, 128]" = torch.ops.aten.permute.default(permute, [1, 0]);  permute = None
        mm_2: "bf16[128, 128]" = torch.ops.aten.mm.default(view_12, permute_10);  permute_10 = None
        permute_11: "bf16[384, 128]" = torch.ops.aten.permute.default(view_12, [1, 0])
        mm_3: "bf16[384, 128]" = torch.ops.aten.mm.default(permute_11, view);  permute_11 = view = None
        sum_2: "bf16[1, 384]" = torch.ops.aten.sum.dim_IntList(view_12, [0], True);  view_12 = None
        view_13: "bf16[384]" = torch.ops.aten.view.default(sum_2, [384]);  sum_2 = None
        view_14: "bf16[2, 64, 128]" = torch.ops.aten.view.default(mm_2, [2, 64, 128]);  mm_2 = None
        convert_element_type_16: "f32[2, 64, 128]" = torch.ops.prims.convert_element_type.default(view_14, torch.float32);  view_14 = None
        convert_element_type_18: "f32[128]" = torch.ops.prims.convert_element_type.default(primals_3, torch.float32);  primals_3 = None
        mul_3: "f32[2, 64, 128]" = torch.ops.aten.mul.Tensor(convert_element_type_16, convert_element_type_18);  convert_element_type_18 = None
        mul_4: "f32[2, 64, 128]" = torch.ops.aten.mul.Tensor(mul_3, 128)
        sum_3: "f32[2, 64, 1]" = torch.ops.aten.sum.dim_IntList(mul_3, [2], True)
        convert_element_type: "f32[2, 64, 128]" = torch.ops.prims.convert_element_type.default(embedding, torch.float32);  embedding = None
        sub: "f32[2, 64, 128]" = torch.ops.aten.sub.Tensor(convert_element_type, getitem_1);  convert_element_type = getitem_1 = None
        mul: "f32[2, 64, 128]" = torch.ops.aten.mul.Tensor(sub, rsqrt);  sub = None
        mul_5: "f32[2, 64, 128]" = torch.ops.aten.mul.Tensor(mul_3, mul);  mul_3 = None
        sum_4: "f32[2, 64, 1]" = torch.ops.aten.sum.dim_IntList(mul_5, [2], True);  mul_5 = None
        mul_6: "f32[2, 64, 128]" = torch.ops.aten.mul.Tensor(mul, sum_4);  sum_4 = None
        sub_2: "f32[2, 64, 128]" = torch.ops.aten.sub.Tensor(mul_4, sum_3);  mul_4 = sum_3 = None
        sub_3: "f32[2, 64, 128]" = torch.ops.aten.sub.Tensor(sub_2, mul_6);  sub_2 = mul_6 = None
        div: "f32[2, 64, 1]" = torch.ops.aten.div.Tensor(rsqrt, 128);  rsqrt = None
        mul_7: "f32[2, 64, 128]" = torch.ops.aten.mul.Tensor(div, sub_3);  div = sub_3 = None
        mul_8: "f32[2, 64, 128]" = torch.ops.aten.mul.Tensor(convert_element_type_16, mul);  mul = None
        sum_5: "f32[128]" = torch.ops.aten.sum.dim_IntList(mul_8, [0, 1]);  mul_8 = None
        sum_6: "f32[128]" = torch.ops.aten.sum.dim_IntList(convert_element_type_16, [0, 1]);  convert_element_type_16 = None
        convert_element_type_20: "bf16[2, 64, 128]" = torch.ops.prims.convert_element_type.default(mul_7, torch.bfloat16);  mul_7 = None
        convert_element_type_21: "bf16[128]" = torch.ops.prims.convert_element_type.default(sum_5, torch.bfloat16);  sum_5 = None
        convert_element_type_22: "bf16[128]" = torch.ops.prims.convert_element_type.default(sum_6, torch.bfloat16);  sum_6 = None
        add_3: "bf16[2, 64, 128]" = torch.ops.aten.add.Tensor(tangents_1, convert_element_type_20);  tangents_1 = convert_element_type_20 = None

        # File: /tmp/mk_cuda.py:17 in forward, code: x=s.e(ids); b,t,_=x.shape
        convert_element_type_23: "f32[2, 64, 128]" = torch.ops.prims.convert_element_type.default(add_3, torch.float32);  add_3 = None
        ge: "b8[2, 64]" = torch.ops.aten.ge.Scalar(primals_2, 0)
        lt: "b8[2, 64]" = torch.ops.aten.lt.Scalar(primals_2, 100)
        bitwise_and: "b8[2, 64]" = torch.ops.aten.bitwise_and.Tensor(ge, lt);  ge = lt = None
        ne: "b8[2, 64]" = torch.ops.aten.ne.Scalar(primals_2, -1)
        bitwise_and_1: "b8[2, 64]" = torch.ops.aten.bitwise_and.Tensor(bitwise_and, ne);  bitwise_and = ne = None
        unsqueeze: "b8[2, 64, 1]" = torch.ops.aten.unsqueeze.default(bitwise_and_1, -1);  bitwise_and_1 = None
        full_default: "f32[100, 128]" = torch.ops.aten.full.default([100, 128], 0, dtype = torch.float32, layout = torch.strided, device = device(type='cuda', index=0), pin_memory = False)
        _unsafe_masked_index_put_accumulate: "f32[100, 128]" = torch.ops.aten._unsafe_masked_index_put_accumulate.default(full_default, unsqueeze, [primals_2], convert_element_type_23);  full_default = unsqueeze = primals_2 = convert_element_type_23 = None
        convert_element_type_24: "bf16[100, 128]" = torch.ops.prims.convert_element_type.default(_unsafe_masked_index_put_accumulate, torch.bfloat16);  _unsafe_masked_index_put_accumulate = None
        return (convert_element_type_24, None, convert_element_type_21, convert_element_type_22, mm_3, view_13, mm_1, view_7)
