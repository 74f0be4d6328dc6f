// Triton kernels are embedded as comments in /tmp/cache/cjwnzvjpfm3edkypkkzfngn5upxcffbbp7dmzve3upcea4d6ogjx/c7ntbqcw7x4owt65nqhx7ronxuyburgc6wfvysmuisasflrwujy5.wrapper.cpp

#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_convolution_0(const float* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0,
                       float* out_ptr1,
                       float* out_ptr2,
                       const int64_t ks0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(ks0); x0+=static_cast<int64_t>(1L))
            {
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(3L); x1+=static_cast<int64_t>(16L))
                {
                    for(int64_t x2=static_cast<int64_t>(0L); x2<static_cast<int64_t>(256L); x2+=static_cast<int64_t>(16L))
                    {
                        {
                            if(C10_LIKELY(x1 >= static_cast<int64_t>(0L) && x1 < static_cast<int64_t>(3L) && x2 >= static_cast<int64_t>(0) && x2 < static_cast<int64_t>(256L)))
                            {
                                alignas(std::max(std::size_t(16), alignof(float))) float tmp1[16*16];
                                for (long x1_inner = 0; x1_inner < static_cast<int64_t>(3L); x1_inner++)
                                {
                                    auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x2 + 256L*x1 + 256L*x1_inner + 768L*x0), static_cast<int64_t>(16));
                                    tmp0.store(tmp1 + static_cast<int64_t>(16L*x1_inner));
                                }
                                transpose_mxn<float,static_cast<int64_t>(3L),static_cast<int64_t>(16),false>(tmp1, static_cast<int64_t>(16), out_ptr0 + static_cast<int64_t>(x1 + 3L*x2 + 768L*x0), static_cast<int64_t>(3L));
                            }
                        }
                    }
                }
            }
        }
        #pragma omp single
        {
            {
                #pragma GCC ivdep
                for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); x0+=static_cast<int64_t>(1L))
                {
                    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(3L); x1+=static_cast<int64_t>(16L))
                    {
                        for(int64_t x2=static_cast<int64_t>(0L); x2<static_cast<int64_t>(9L); x2+=static_cast<int64_t>(16L))
                        {
                            {
                                if(C10_LIKELY(x1 >= static_cast<int64_t>(0L) && x1 < static_cast<int64_t>(3L) && x2 >= static_cast<int64_t>(0L) && x2 < static_cast<int64_t>(9L)))
                                {
                                    alignas(std::max(std::size_t(16), alignof(float))) float tmp1[16*16];
                                    for (long x1_inner = 0; x1_inner < static_cast<int64_t>(3L); x1_inner++)
                                    {
                                        auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x2 + 9L*x1 + 9L*x1_inner + 27L*x0), static_cast<int64_t>(9L));
                                        tmp0.store(tmp1 + static_cast<int64_t>(9L*x1_inner), static_cast<int64_t>(9L));
                                    }
                                    transpose_mxn<float,static_cast<int64_t>(3L),static_cast<int64_t>(9L),false>(tmp1, static_cast<int64_t>(9L), out_ptr1 + static_cast<int64_t>(x1 + 3L*x2 + 27L*x0), static_cast<int64_t>(3L));
                                }
                            }
                        }
                    }
                }
            }
        }
        #pragma omp single
        {
            {
                for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); x0+=static_cast<int64_t>(16L))
                {
                    {
                        if(C10_LIKELY(x0 >= static_cast<int64_t>(0L) && x0 < static_cast<int64_t>(8L)))
                        {
                            for (int64_t x0_tail = static_cast<int64_t>(0L);x0_tail < static_cast<int64_t>(8L); x0_tail++)
                            {
                                auto tmp0 = x0_tail;
                                auto tmp1 = c10::convert<int64_t>(tmp0);
                                auto tmp2 = static_cast<int64_t>(4);
                                auto tmp3 = tmp1 < tmp2;
                                auto tmp4 = static_cast<int64_t>(2);
                                auto tmp5 = tmp1 < tmp4;
                                auto tmp6 = static_cast<int64_t>(1);
                                auto tmp7 = tmp1 < tmp6;
                                auto tmp8 = static_cast<float>(-0.150535449385643);
                                auto tmp9 = static_cast<float>(-0.10086914151906967);
                                auto tmp10 = tmp7 ? tmp8 : tmp9;
                                auto tmp11 = static_cast<int64_t>(3);
                                auto tmp12 = tmp1 < tmp11;
                                auto tmp13 = static_cast<float>(0.1554020494222641);
                                auto tmp14 = static_cast<float>(-0.15618222951889038);
                                auto tmp15 = tmp12 ? tmp13 : tmp14;
                                auto tmp16 = tmp5 ? tmp10 : tmp15;
                                auto tmp17 = static_cast<int64_t>(6);
                                auto tmp18 = tmp1 < tmp17;
                                auto tmp19 = static_cast<int64_t>(5);
                                auto tmp20 = tmp1 < tmp19;
                                auto tmp21 = static_cast<float>(-0.013819108717143536);
                                auto tmp22 = static_cast<float>(0.1903790831565857);
                                auto tmp23 = tmp20 ? tmp21 : tmp22;
                                auto tmp24 = static_cast<int64_t>(7);
                                auto tmp25 = tmp1 < tmp24;
                                auto tmp26 = static_cast<float>(0.06952010095119476);
                                auto tmp27 = static_cast<float>(0.0054488470777869225);
                                auto tmp28 = tmp25 ? tmp26 : tmp27;
                                auto tmp29 = tmp18 ? tmp23 : tmp28;
                                auto tmp30 = tmp3 ? tmp16 : tmp29;
                                out_ptr2[static_cast<int64_t>(x0_tail)] = tmp30;
                            }
                        }
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}

#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused__native_batch_norm_legit_no_training_relu_1(const float* in_ptr0,
                       float* out_ptr0,
                       const int64_t ks0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(ks0); x0+=static_cast<int64_t>(1L))
            {
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(8L); x1+=static_cast<int64_t>(16L))
                {
                    for(int64_t x2=static_cast<int64_t>(0L); x2<static_cast<int64_t>(256L); x2+=static_cast<int64_t>(16L))
                    {
                        {
                            if(C10_LIKELY(x1 >= static_cast<int64_t>(0L) && x1 < static_cast<int64_t>(1) && x2 >= static_cast<int64_t>(0) && x2 < static_cast<int64_t>(1)))
                            {
                                for (int64_t x1_tail = static_cast<int64_t>(0L);x1_tail < static_cast<int64_t>(8L); x1_tail++)
                                {
                                    for (int64_t x2_tail = static_cast<int64_t>(0);x2_tail < static_cast<int64_t>(256L); x2_tail++)
                                    {
                                        auto tmp0 = in_ptr0[static_cast<int64_t>(x1_tail + 8L*x2_tail + 2048L*x0)];
                                        auto tmp1 = x1_tail;
                                        auto tmp2 = c10::convert<int64_t>(tmp1);
                                        auto tmp3 = static_cast<int64_t>(4);
                                        auto tmp4 = tmp2 < tmp3;
                                        auto tmp5 = static_cast<int64_t>(2);
                                        auto tmp6 = tmp2 < tmp5;
                                        auto tmp7 = static_cast<int64_t>(1);
                                        auto tmp8 = tmp2 < tmp7;
                                        auto tmp9 = static_cast<float>(0.0);
                                        auto tmp10 = tmp8 ? tmp9 : tmp9;
                                        auto tmp11 = static_cast<int64_t>(3);
                                        auto tmp12 = tmp2 < tmp11;
                                        auto tmp13 = tmp12 ? tmp9 : tmp9;
                                        auto tmp14 = tmp6 ? tmp10 : tmp13;
                                        auto tmp15 = static_cast<int64_t>(6);
                                        auto tmp16 = tmp2 < tmp15;
                                        auto tmp17 = static_cast<int64_t>(5);
                                        auto tmp18 = tmp2 < tmp17;
                                        auto tmp19 = tmp18 ? tmp9 : tmp9;
                                        auto tmp20 = static_cast<int64_t>(7);
                                        auto tmp21 = tmp2 < tmp20;
                                        auto tmp22 = tmp21 ? tmp9 : tmp9;
                                        auto tmp23 = tmp16 ? tmp19 : tmp22;
                                        auto tmp24 = tmp4 ? tmp14 : tmp23;
                                        auto tmp25 = float(tmp0 - tmp24);
                                        auto tmp26 = static_cast<float>(1.0);
                                        auto tmp27 = tmp8 ? tmp26 : tmp26;
                                        auto tmp28 = tmp12 ? tmp26 : tmp26;
                                        auto tmp29 = tmp6 ? tmp27 : tmp28;
                                        auto tmp30 = tmp18 ? tmp26 : tmp26;
                                        auto tmp31 = tmp21 ? tmp26 : tmp26;
                                        auto tmp32 = tmp16 ? tmp30 : tmp31;
                                        auto tmp33 = tmp4 ? tmp29 : tmp32;
                                        auto tmp34 = static_cast<float>(1e-05);
                                        auto tmp35 = float(tmp33 + tmp34);
                                        auto tmp36 = std::sqrt(tmp35);
                                        auto tmp37 = tmp26 / tmp36;
                                        auto tmp38 = float(tmp37 * tmp26);
                                        auto tmp39 = float(tmp25 * tmp38);
                                        auto tmp40 = float(tmp39 * tmp33);
                                        auto tmp41 = float(tmp40 + tmp24);
                                        auto tmp42 = std::max(tmp41, decltype(tmp41)(0));
                                        out_ptr0[static_cast<int64_t>(x2_tail + 256L*x1_tail + 2048L*x0)] = tmp42;
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}

#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_gelu_sum_2(float* in_out_ptr0,
                       float* out_ptr0,
                       const int64_t ks0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    {
        {
            float tmp_acc0 = 0;
            at::vec::Vectorized<float> tmp_acc0_vec = at::vec::Vectorized<float>(0);
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(32L*ks0); x0+=static_cast<int64_t>(16L))
            {
                {
                    if(C10_LIKELY(x0 >= static_cast<int64_t>(0) && x0 < static_cast<int64_t>(32L*ks0)))
                    {
                        auto tmp0 = at::vec::Vectorized<float>::loadu(in_out_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
                        auto tmp1 = static_cast<float>(0.5);
                        auto tmp2 = at::vec::Vectorized<float>(tmp1);
                        auto tmp3 = tmp0 * tmp2;
                        auto tmp4 = static_cast<float>(0.7071067811865476);
                        auto tmp5 = at::vec::Vectorized<float>(tmp4);
                        auto tmp6 = tmp0 * tmp5;
                        auto tmp7 = tmp6.erf();
                        auto tmp8 = static_cast<float>(1.0);
                        auto tmp9 = at::vec::Vectorized<float>(tmp8);
                        auto tmp10 = tmp7 + tmp9;
                        auto tmp11 = tmp3 * tmp10;
                        tmp11.store(in_out_ptr0 + static_cast<int64_t>(x0));
                        tmp_acc0_vec = tmp_acc0_vec + tmp11;
                    }
                }
            }
            tmp_acc0 = tmp_acc0 + at::vec::vec_reduce_all<float, 1>([](at::vec::Vectorized<float>& x, at::vec::Vectorized<float>& y) { return x + y; }, tmp_acc0_vec);
            out_ptr0[static_cast<int64_t>(0L)] = static_cast<float>(tmp_acc0);
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}

#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused__softmax_3(const float* in_ptr0,
                       float* out_ptr0,
                       float* out_ptr1,
                       float* out_ptr2,
                       const int64_t ks0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    {
        std::unique_ptr<float []> buf_local_buffer_data_0 = std::make_unique<float []>(10L);
        float* local_buffer_data_0 = buf_local_buffer_data_0.get();
        #pragma GCC ivdep
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(ks0); x0+=static_cast<int64_t>(1L))
        {
            {
                float tmp_acc0 = -std::numeric_limits<float>::infinity();
                at::vec::Vectorized<float> tmp_acc0_vec = at::vec::Vectorized<float>(-std::numeric_limits<float>::infinity());
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(10L); x1+=static_cast<int64_t>(16L))
                {
                    {
                        if(C10_LIKELY(x1 >= static_cast<int64_t>(0L) && x1 < static_cast<int64_t>(10L)))
                        {
                            auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 10L*x0), static_cast<int64_t>(10L));
                            tmp_acc0_vec = max_masked_reduce(tmp_acc0_vec, tmp0, static_cast<int64_t>(10L));
                        }
                    }
                }
                tmp_acc0 = max_propagate_nan(tmp_acc0, at::vec::vec_reduce_all<float, 1>([](at::vec::Vectorized<float>& x, at::vec::Vectorized<float>& y) { return at::vec::maximum(x, y); }, tmp_acc0_vec));
                out_ptr0[static_cast<int64_t>(x0)] = static_cast<float>(tmp_acc0);
            }
            {
                float tmp_acc0 = 0;
                at::vec::Vectorized<float> tmp_acc0_vec = at::vec::Vectorized<float>(0);
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(10L); x1+=static_cast<int64_t>(16L))
                {
                    {
                        if(C10_LIKELY(x1 >= static_cast<int64_t>(0L) && x1 < static_cast<int64_t>(10L)))
                        {
                            auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 10L*x0), static_cast<int64_t>(10L));
                            auto tmp1 = out_ptr0[static_cast<int64_t>(x0)];
                            auto tmp2 = at::vec::Vectorized<float>(tmp1);
                            auto tmp3 = tmp0 - tmp2;
                            auto tmp4 = tmp3.exp();
                            tmp4.store(local_buffer_data_0 + static_cast<int64_t>(x1), static_cast<int64_t>(10L));
                            tmp_acc0_vec = sum_masked_reduce(tmp_acc0_vec, tmp4, static_cast<int64_t>(10L));
                        }
                    }
                }
                tmp_acc0 = tmp_acc0 + at::vec::vec_reduce_all<float, 1>([](at::vec::Vectorized<float>& x, at::vec::Vectorized<float>& y) { return x + y; }, tmp_acc0_vec);
                out_ptr1[static_cast<int64_t>(x0)] = static_cast<float>(tmp_acc0);
            }
            for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(10L); x1+=static_cast<int64_t>(16L))
            {
                {
                    if(C10_LIKELY(x1 >= static_cast<int64_t>(0L) && x1 < static_cast<int64_t>(10L)))
                    {
                        auto tmp0 = at::vec::Vectorized<float>::loadu(local_buffer_data_0 + static_cast<int64_t>(x1), static_cast<int64_t>(10L));
                        auto tmp1 = out_ptr1[static_cast<int64_t>(x0)];
                        auto tmp2 = at::vec::Vectorized<float>(tmp1);
                        auto tmp3 = tmp0 / tmp2;
                        tmp3.store(out_ptr2 + static_cast<int64_t>(x1 + 10L*x0), static_cast<int64_t>(10L));
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}

// Compile cmd
// Link cmd
