// hand-written stubs for cuBLASLt / cuDNN / cuda / nvrtc entry points whose outputs matter
#include <cstdint>
#include <cstring>
#include <cstdlib>
#include <cstdio>
#define EX extern "C" __attribute__((visibility("default")))
static long envl(const char*n,long d){const char*s=getenv(n);return s?atol(s):d;}
#ifdef L_cublasLt
// cublasLtMatmulHeuristicResult_t {algo[8]u64; size_t ws; int state; float waves; int reserved[4]}
struct HR{uint64_t algo[8];size_t ws;int state;float waves;int r[4];};
EX int cublasLtMatmulAlgoGetHeuristic(void*,void*,void*,void*,void*,void*,void*,int n,HR*r,int*out){memset(r,0,sizeof(HR));r->state=0;r->ws=envl("FAKE_LT_WS",0);*out=1;return 0;}
EX size_t cublasLtGetVersion(){return 130000;}
#define P(n) EX int n(void**p){*p=(void*)0x10;return 0;}
EX int cublasLtMatmulDescCreate(void**p,int,int){*p=(void*)0x10;return 0;}
EX int cublasLtMatrixLayoutCreate(void**p,int,uint64_t,uint64_t,int64_t){*p=(void*)0x10;return 0;}
EX int cublasLtMatmulPreferenceCreate(void**p){*p=(void*)0x10;return 0;}
#endif
#ifdef L_cublas
EX int cublasCreate_v2(void**p){*p=(void*)0x20;return 0;}
#endif
#ifdef L_cuda
EX int cuCtxGetCurrent(void**p){*p=(void*)1;return 0;}
EX int cuGetErrorString(int,const char**s){*s="fake";return 0;}
#endif
#ifdef L_nvrtc
EX int nvrtcVersion(int*a,int*b){*a=13;*b=0;return 0;}
EX int nvrtcGetPTXSize(void*,size_t*s){*s=16;return 0;}
EX int nvrtcGetCUBINSize(void*,size_t*s){*s=16;return 0;}
EX int nvrtcGetProgramLogSize(void*,size_t*s){*s=1;return 0;}
EX int nvrtcGetLoweredName(void*,const char*,const char**o){*o="k";return 0;}
EX const char* nvrtcGetErrorString(int){return "fake";}
#endif
#ifdef L_cudnn
EX size_t cudnnGetVersion(){return envl("FAKE_CUDNN_VER",92000);}
EX size_t cudnnGetCudartVersion(){return 13000;}
EX int cudnnGetProperty(int t,int*v){*v=t==0?9:t==1?20:0;return 0;}
EX const char* cudnnGetErrorString(int){return "fake";}
EX void cudnnGetLastErrorString(char*b,size_t n){if(n)b[0]=0;}
EX int cudnnGetReductionWorkspaceSize(void*,void*,void*,void*,size_t*s){*s=envl("FAKE_REDUCE_WS",0);return 0;}
EX int cudnnGetReductionIndicesSize(void*,void*,void*,void*,size_t*s){*s=0;return 0;}
EX int cudnnDropoutGetStatesSize(void*,size_t*s){*s=envl("FAKE_DROPOUT",0);return 0;}
EX int cudnnGetRNNTempSpaceSizes(void*,void*,int,void*,size_t*w,size_t*r){*w=envl("FAKE_RNN_WS",0);*r=0;return 0;}
EX int cudnnGetRNNWeightParams(void*,void*,int,size_t,const void*w,int,void*,void**m,void*,void**b){*m=(void*)w;*b=(void*)w;return 0;}
EX int cudnnGetConvolutionForwardWorkspaceSize(void*,void*,void*,void*,void*,int,size_t*s){*s=envl("FAKE_CUDNN_WS",0);return 0;}
struct Perf{int algo;int status;float time;size_t memory;int determinism;int mathType;int reserved[3];};
EX int cudnnGetConvolutionForwardAlgorithm_v7(void*,void*,void*,void*,void*,int,int*n,Perf*p){memset(p,0,sizeof*p);p->memory=envl("FAKE_CUDNN_WS",0);*n=1;return 0;}
EX int cudnnFindConvolutionForwardAlgorithmEx(void*,void*,void*,void*,void*,void*,void*,void*,int,int*n,Perf*p,void*,size_t s){if(getenv("FAKE_CUDNN_DBG"))fprintf(stderr,"find ws %zu\n",s);memset(p,0,sizeof*p);p->memory=envl("FAKE_CUDNN_WS",0);*n=1;return 0;}
EX int cudnnGetTensorNdDescriptor(void*,int,int*dt,int*nd,int*dims,int*st){*dt=0;*nd=3;for(int i=0;i<3;i++){dims[i]=1;st[i]=1;}return 0;}
EX int cudnnGetStream(void*,void**s){*s=0;return 0;}
EX int cudnnCreate(void**p){*p=(void*)0x30;return 0;}
static uintptr_t h=0x100;
EX int cudnnBackendCreateDescriptor(int t,void**p){*p=(void*)(h+=16);return 0;}
// attrs: execution plan workspace size = CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE (402)
EX int cudnnBackendGetAttribute(void*,int name,int type,int64_t req,int64_t*cnt,void*arr){
  static int dbg=getenv("FAKE_CUDNN_DBG")!=0; if(dbg)fprintf(stderr,"cudnnGet name=%d type=%d req=%ld arr=%p\n",name,type,(long)req,arr);
  if(name==402){ if(arr)*(int64_t*)arr=envl("FAKE_CUDNN_WS",0); if(cnt)*cnt=1; return 0;}
  if(name==202){ if(cnt)*cnt=1; return 0;}             // ENGINEHEUR_RESULTS
  if(cnt)*cnt=(type==15)?1:0; if(arr&&type==3) *(int64_t*)arr=0; if(arr&&(type==23||type==9||type==11||type==19)) *(int*)arr=0; return 0;}
#define D(n) EX int n(void**p){*p=(void*)(h+=16);return 0;}
D(cudnnCreateLRNDescriptor) D(cudnnCreateReduceTensorDescriptor) D(cudnnCreateTensorDescriptor) D(cudnnCreateFilterDescriptor) D(cudnnCreateConvolutionDescriptor) D(cudnnCreateActivationDescriptor) D(cudnnCreateDropoutDescriptor) D(cudnnCreateRNNDescriptor) D(cudnnCreateRNNDataDescriptor) D(cudnnCreatePoolingDescriptor)
#endif
