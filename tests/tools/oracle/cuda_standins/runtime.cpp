// Stub CUDA runtime for running the whole of torch-CUDA on a CPU-only box: kernels are no-ops, the
// caching allocator and all ATen host code are real.
#include <cuda_runtime_api.h>
#include <cstring>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <cstdint>
#define EX extern "C" __attribute__((visibility("default")))
static size_t g_total=143771ull<<20, g_used=0; static std::map<uintptr_t,size_t> live; static uintptr_t g_next=0x7e0000000000ull; static std::mutex mu;
static int trace(){static int t=getenv("FAKE_TRACE")!=nullptr; return t;}
static bool isdev(const void*p){ uintptr_t a=(uintptr_t)p; return a>=0x7e0000000000ull && a<g_next; }
EX cudaError_t cudaMalloc(void**p,size_t s){std::lock_guard<std::mutex>l(mu); size_t r=(s+(2ull<<20)-1)/(2ull<<20)*(2ull<<20); if(g_used+r>g_total){*p=0;return cudaErrorMemoryAllocation;} *p=(void*)g_next; live[g_next]=r; g_next+=r; g_used+=r; if(trace())fprintf(stderr,"cudaMalloc %zu\n",s); return cudaSuccess;}
EX cudaError_t cudaFree(void*p){if(trace())fprintf(stderr,"cudaFree\n");std::lock_guard<std::mutex>l(mu); auto i=live.find((uintptr_t)p); if(i!=live.end()){g_used-=i->second; live.erase(i);} return cudaSuccess;}
EX cudaError_t cudaMallocAsync(void**p,size_t s,cudaStream_t){return cudaMalloc(p,s);}
EX cudaError_t cudaFreeAsync(void*p,cudaStream_t){return cudaFree(p);}
EX cudaError_t cudaMemGetInfo(size_t*f,size_t*t){*f=g_total-g_used;*t=g_total;return cudaSuccess;}
EX cudaError_t cudaGetDeviceCount(int*c){*c=1;return cudaSuccess;}
EX cudaError_t cudaGetDevice(int*d){*d=0;return cudaSuccess;}
static int env(const char*n,int d){const char*s=getenv(n);return s?atoi(s):d;}
#undef cudaGetDeviceProperties
EX cudaError_t cudaGetDeviceProperties(cudaDeviceProp*p,int){memset(p,0,sizeof*p);strcpy(p->name,"NVIDIA H200");p->totalGlobalMem=g_total;p->major=env("FAKE_MAJOR",9);p->minor=env("FAKE_MINOR",0);p->multiProcessorCount=env("FAKE_SMS",132);p->warpSize=32;p->maxThreadsPerMultiProcessor=2048;p->maxThreadsPerBlock=1024;p->maxThreadsDim[0]=1024;p->maxThreadsDim[1]=1024;p->maxThreadsDim[2]=64;p->maxGridSize[0]=2147483647;p->maxGridSize[1]=65535;p->maxGridSize[2]=65535;p->sharedMemPerBlock=49152;p->sharedMemPerBlockOptin=232448;p->sharedMemPerMultiprocessor=233472;p->regsPerBlock=65536;p->regsPerMultiprocessor=65536;p->totalConstMem=65536;p->textureAlignment=512;p->l2CacheSize=62914560;p->maxBlocksPerMultiProcessor=32;p->unifiedAddressing=1;p->managedMemory=1;p->concurrentKernels=1;p->reservedSharedMemPerBlock=1024;p->memoryBusWidth=6144;p->cooperativeLaunch=1;return cudaSuccess;}
EX cudaError_t cudaDeviceGetAttribute(int*v,enum cudaDeviceAttr a,int){ switch((int)a){case 1:*v=1024;break;case 2:*v=1024;break;case 3:*v=1024;break;case 4:*v=64;break;case 5:*v=2147483647;break;case 6:case 7:*v=65535;break;case 8:*v=49152;break;case 10:*v=32;break;case 12:*v=65536;break;case 16:*v=env("FAKE_SMS",132);break;case 39:*v=2048;break;case 75:*v=env("FAKE_MAJOR",9);break;case 76:*v=env("FAKE_MINOR",0);break;case 81:*v=233472;break;case 82:*v=65536;break;case 97:*v=232448;break;case 106:*v=32;break;case 38:*v=62914560;break;case 95:*v=1;break;case 111:*v=1024;break;default:*v=0;} return cudaSuccess;}
EX cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes*a,const void*){memset(a,0,sizeof*a);a->maxThreadsPerBlock=1024;a->numRegs=env("FAKE_REGS",32);a->ptxVersion=90;a->binaryVersion=90;a->maxDynamicSharedSizeBytes=49152;return cudaSuccess;}
EX cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int*n,const void*,int bs,size_t sm){int v=bs>0?2048/bs:16; if(v>32)v=32; if(sm){int w=233472/(sm+1024); if(w<v)v=w;} *n=v<1?1:v; return cudaSuccess;}
EX cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int*n,const void*f,int bs,size_t sm,unsigned){return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n,f,bs,sm);}
EX cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes*a,const void*p){memset(a,0,sizeof*a); if(isdev(p)){a->type=cudaMemoryTypeDevice;a->devicePointer=(void*)p;}else{a->type=cudaMemoryTypeUnregistered;a->hostPointer=(void*)p;} return cudaSuccess;}
static void cpy(void*d,const void*s,size_t n){ bool dd=isdev(d),sd=isdev(s); if(!dd&&sd) memset(d,0,n); else if(!dd&&!sd) memmove(d,s,n);}
EX cudaError_t cudaMemcpy(void*d,const void*s,size_t n,enum cudaMemcpyKind){cpy(d,s,n);return cudaSuccess;}
EX cudaError_t cudaMemcpyAsync(void*d,const void*s,size_t n,enum cudaMemcpyKind,cudaStream_t){cpy(d,s,n);return cudaSuccess;}
EX cudaError_t cudaHostAlloc(void**p,size_t n,unsigned){if(trace())fprintf(stderr,"cudaHostAlloc %zu\n",n);*p=aligned_alloc(4096,(n+4095)/4096*4096);return cudaSuccess;}
EX cudaError_t cudaFreeHost(void*p){free(p);return cudaSuccess;}
EX const char* cudaGetErrorName(cudaError_t){return "err";}
EX const char* cudaGetErrorString(cudaError_t){return "err";}
EX cudaError_t cudaDriverGetVersion(int*v){*v=13000;return cudaSuccess;}
EX cudaError_t cudaRuntimeGetVersion(int*v){*v=13000;return cudaSuccess;}
EX cudaError_t cudaDeviceGetStreamPriorityRange(int*a,int*b){*a=0;*b=-5;return cudaSuccess;}
EX cudaError_t cudaDeviceGetPCIBusId(char*b,int n,int){snprintf(b,n,"0000:01:00.0");return cudaSuccess;}
static uintptr_t hnd=0x1000;
EX cudaError_t cudaStreamCreateWithPriority(cudaStream_t*s,unsigned,int){*s=(cudaStream_t)(hnd+=16);return cudaSuccess;}
EX cudaError_t cudaStreamCreateWithFlags(cudaStream_t*s,unsigned){*s=(cudaStream_t)(hnd+=16);return cudaSuccess;}
EX cudaError_t cudaStreamCreate(cudaStream_t*s){*s=(cudaStream_t)(hnd+=16);return cudaSuccess;}
EX cudaError_t cudaStreamGetPriority(cudaStream_t,int*p){*p=0;return cudaSuccess;}
EX cudaError_t cudaEventCreate(cudaEvent_t*s){*s=(cudaEvent_t)(hnd+=16);return cudaSuccess;}
EX cudaError_t cudaEventCreateWithFlags(cudaEvent_t*s,unsigned){*s=(cudaEvent_t)(hnd+=16);return cudaSuccess;}
EX cudaError_t cudaEventElapsedTime(float*f,cudaEvent_t,cudaEvent_t){*f=1;return cudaSuccess;}
EX cudaError_t cudaStreamIsCapturing(cudaStream_t,enum cudaStreamCaptureStatus*s){*s=cudaStreamCaptureStatusNone;return cudaSuccess;}
EX cudaError_t cudaStreamGetCaptureInfo(cudaStream_t,enum cudaStreamCaptureStatus*s,unsigned long long*,cudaGraph_t*,const cudaGraphNode_t**,const cudaGraphEdgeData**,size_t*){*s=cudaStreamCaptureStatusNone;return cudaSuccess;}
EX cudaError_t cudaGetSymbolAddress(void**p,const void*){*p=(void*)0x7e0000000000ull;return cudaSuccess;}
EX void** __cudaRegisterFatBinary(void*){static void*x[64]; return x;}
EX void __cudaRegisterFatBinaryEnd(void**){}
EX void __cudaUnregisterFatBinary(void**){}
EX void __cudaRegisterFunction(void**,const char*,char*,const char*,int,void*,void*,void*,void*,int*){}
EX void __cudaRegisterVar(void**,char*,char*,const char*,int,size_t,int,int){}
EX char __cudaInitModule(void**){return 0;}
static thread_local dim3 gd,bd; static thread_local size_t sm; static thread_local void*st;
EX unsigned __cudaPushCallConfiguration(dim3 g,dim3 b,size_t s,struct CUstream_st*t){gd=g;bd=b;sm=s;st=t;return 0;}
EX cudaError_t __cudaPopCallConfiguration(dim3*g,dim3*b,size_t*s,void*t){*g=gd;*b=bd;*s=sm;*(void**)t=st;return cudaSuccess;}
EX cudaError_t __cudaGetKernel(cudaKernel_t*k,const void*f){*k=(cudaKernel_t)f;return cudaSuccess;}
EX cudaError_t __cudaLaunchKernel(cudaKernel_t,dim3,dim3,void**,size_t,cudaStream_t){return cudaSuccess;}
static int z(...){return 0;}
static int drvAttr(int*v,int a,int d){return cudaDeviceGetAttribute(v,(cudaDeviceAttr)a,d);}
static int drvCtx(void**p){*p=(void*)1;return 0;}
static int drvErr(int,const char**s){*s="fake";return 0;}
static void* ep(const char*n){ if(!strcmp(n,"cuDeviceGetAttribute"))return (void*)drvAttr; if(!strcmp(n,"cuCtxGetCurrent"))return (void*)drvCtx; if(!strcmp(n,"cuGetErrorString"))return (void*)drvErr; return (void*)z;}
EX cudaError_t cudaGetDriverEntryPointByVersion(const char*n,void**f,unsigned,unsigned long long,enum cudaDriverEntryPointQueryResult*q){*f=ep(n);if(q)*q=cudaDriverEntryPointSuccess;return cudaSuccess;}
EX cudaError_t cudaMallocHost(void**p,size_t n){return cudaHostAlloc(p,n,0);}
