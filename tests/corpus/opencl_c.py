"""Kernels in OpenCL C, with their arguments: each must compute what PoCL computes on the processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LocalBytes:
    """An argument in local memory."""

    size: int


@dataclass(frozen=True)
class OpenCLCase:
    """A kernel, its arguments, and its launch in work-items."""

    name: str
    source: str
    arguments: Sequence[Any]
    items: tuple[int, ...] = (64,)
    group: tuple[int, ...] = (16,)


def floats(count: int) -> np.ndarray:
    """Return numbers from -4 to 4."""
    return np.random.default_rng(0).random(count, dtype=np.float32) * 8 - 4


def integers(count: int) -> np.ndarray:
    """Return numbers from -1000 to 999."""
    return np.random.default_rng(0).integers(-1000, 1000, count).astype(np.int32)


def words(count: int) -> np.ndarray:
    """Return numbers of all 32 bits."""
    return np.random.default_rng(0).integers(0, 2**32, count).astype(np.uint32)


def zeros(count: int, dtype: str = "f4") -> np.ndarray:
    """Return zeros."""
    return np.zeros(count, dtype)


CASES: Sequence[OpenCLCase] = (
    OpenCLCase(
        "vec",
        r"""
__kernel void vec(__global const float4*a,__global float4*o){
    int i=get_global_id(0);
    float4 v=a[i];
    v.xy=v.wz;
    v.s3+=1.0f;
    o[i]=v*2.0f-(float4)(1,2,3,4)+v.yxwz;
}
""",
        (
            floats(256),
            zeros(256),
        ),
    ),
    OpenCLCase(
        "swz",
        r"""
__kernel void swz(__global const float8*a,__global float8*o){
    int i=get_global_id(0);
    float8 v=a[i];
    v.lo=v.hi;
    v.even=v.odd;
    o[i]=(float8)(v.s01234567.hi,v.lo);
}
""",
        (
            floats(512),
            zeros(512),
        ),
    ),
    OpenCLCase(
        "cmp",
        r"""
__kernel void cmp(__global const float4*a,__global int4*o){
    int i=get_global_id(0);
    o[i]=(a[i]>0.5f)+ (a[i]==a[i].wzyx)*2;
    o[i]+=isgreater(a[i],a[i].yyyy)*4;
    o[i].x+=any(a[i]>1.0f)*16+all(a[i]>-3.0f)*32;
}
""",
        (
            floats(256),
            zeros(256, "i4"),
        ),
    ),
    OpenCLCase(
        "conv",
        r"""
__kernel void conv(__global const float4*a,__global int4*o,__global uchar4*c){
    int i=get_global_id(0);
    o[i]=convert_int4(a[i]*100.0f);
    o[i]+=convert_int4_rte(a[i]);
    c[i]=convert_uchar4_sat(a[i]*100.0f);
}
""",
        (
            floats(256),
            zeros(256, "i4"),
            zeros(256, "u1"),
        ),
    ),
    OpenCLCase(
        "ints",
        r"""
__kernel void ints(__global const int*a,__global const uint*b,__global int*o){
    int i=get_global_id(0);
    int x=a[i];
    uint y=b[i];
    o[i*8]=x/7+x%7;
    o[i*8+1]=rotate(y,5u);
    o[i*8+2]=clz(y)+popcount(y);
    o[i*8+3]=mul_hi(x,x*77777);
    o[i*8+4]=hadd(x,3)+rhadd(x,5);
    o[i*8+5]=abs(x)+abs_diff(x,17);
    o[i*8+6]=add_sat(x*3000000,2000000000);
    o[i*8+7]=x<<(y&40)|upsample((short)x,(ushort)y)|clamp(x,-5,5)|mad24(x,3,4)|min(x,9)|(x>>3);
}
""",
        (
            integers(64),
            words(64),
            zeros(512, "i4"),
        ),
    ),
    OpenCLCase(
        "ch",
        r"""
__kernel void ch(__global const char*a,__global const uchar*b,__global int*o){
    int i=get_global_id(0);
    char c=a[i];
    uchar d=b[i];
    c+=d;
    d=~d;
    short s=c*d;
    o[i]=c+d*s+(char)(c<<1)+(d>>1)+sub_sat(c,(char)100)+add_sat(d,(uchar)200);
}
""",
        (
            integers(64).astype("i1"),
            words(64).astype("u1"),
            zeros(64, "i4"),
        ),
    ),
    OpenCLCase(
        "math",
        r"""
__kernel void math(__global const float*a,__global float*o){
    int i=get_global_id(0);
    float x=a[i];
    o[i*8]=mad(x,x,1.0f)+fabs(x);
    o[i*8+1]=mix(x,2.0f,0.25f)+step(0.5f,x)+smoothstep(-1.0f,1.0f,x)+sign(x);
    o[i*8+2]=fmin(x,1.0f)+fmax(x,-1.0f)+floor(x)+ceil(x)+trunc(x)+round(x)+rint(x);
    o[i*8+3]=sqrt(fabs(x))+native_sqrt(fabs(x))+pown(x,3);
    o[i*8+4]=degrees(x)+radians(x);
    o[i*8+5]=select(x,2.0f,(int)(x>0));
    o[i*8+6]=as_float(as_int(x)^1);
    o[i*8+7]=ldexp(x,3)+fmod(x,1.5f)+copysign(x,-1.0f)+isnan(x)+isfinite(x);
}
""",
        (
            floats(64),
            zeros(512),
        ),
    ),
    OpenCLCase(
        "geo",
        r"""
__kernel void geo(__global const float4*a,__global float4*o){
    int i=get_global_id(0);
    float4 v=a[i];
    o[i]=cross(v,v.yzxw);
    o[i].x=dot(v,v.wzyx);
    o[i].y=length(v.xyz);
    o[i].z=distance(v,v.xxxx);
    o[i]+=normalize(v);
}
""",
        (
            floats(256),
            zeros(256),
        ),
    ),
    OpenCLCase(
        "vload",
        r"""
__kernel void vl(__global const float*a,__global float*o){
    int i=get_global_id(0);
    float3 v=vload3(i,a);
    vstore3(v.zyx,i,o);
    float4 w=vload4(i,a);
    vstore2(w.xy+w.zw,i,o+192);
}
""",
        (
            floats(256),
            zeros(320),
        ),
    ),
    OpenCLCase(
        "local",
        r"""
__kernel void red(__global const int*a,__global int*o,__local int*t){
    int l=get_local_id(0);
    t[l]=a[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for(uint s=get_local_size(0)/2; s>0; s>>=1){
        if(l<s)t[l]+=t[l+s];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if(l==0)o[get_group_id(0)]=t[0];
}
""",
        (
            integers(64),
            zeros(4, "i4"),
            LocalBytes(64),
        ),
    ),
    OpenCLCase(
        "atom",
        r"""
__kernel void at(__global const int*a,__global int*o){
    int i=get_global_id(0);
    __local int s[2];
    if(get_local_id(0)<2)s[get_local_id(0)]=0;
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_add(&s[0],a[i]);
    atomic_max(s+1,a[i]);
    barrier(CLK_LOCAL_MEM_FENCE);
    if(get_local_id(0)==0){
        atomic_add(o,s[0]);
        atomic_max(o+1,s[1]);
    }
    atomic_inc(o+2);
    atomic_or((volatile __global int*)o+3,1<<(i%20));
}
""",
        (
            integers(64),
            zeros(4, "i4"),
        ),
    ),
    OpenCLCase(
        "struct",
        r"""
typedef struct{
    float x;
    int k;
    char c[3];
}
P;
typedef union{
    float f;
    uint u;
    uchar b[4];
}
U;
float sum(P p){
    return p.x+p.k+p.c[1];
}
void inc(P*p){
    p->k++;
    p->c[2]=7;
}
__kernel void st(__global const float*a,__global float*o){
    int i=get_global_id(0);
    P p={ a[i],i,{
        1,2,3
    }
}
;
inc(&p);
U u;
u.f=a[i];
u.b[0]=0;
P q[2];
q[0]=p;
q[1]=q[0];
q[1].x=u.f;
o[i]=sum(q[1])+(u.u>>28)+p.c[2];
}
""",
        (
            floats(64),
            zeros(64),
        ),
    ),
    OpenCLCase(
        "gstruct",
        r"""
typedef struct{
    float x;
    short k;
}
P;
__kernel void gs(__global P*p,__global float*o){
    int i=get_global_id(0);
    P q=p[i];
    p[i].k=q.k+1;
    o[i]=q.x+p[i].k;
}
""",
        (
            np.frombuffer(np.random.default_rng(1).integers(0, 100, 512).astype("u1").tobytes(), "u1").copy(),
            zeros(64),
        ),
    ),
    OpenCLCase(
        "awg",
        r"""
__kernel void aw(__global const float*a,__global float*o){
    __local float t[16];
    event_t e=async_work_group_copy(t,a+get_group_id(0)*16,16,0);
    wait_group_events(1,&e);
    o[get_global_id(0)]=t[15-get_local_id(0)];
}
""",
        (
            floats(64),
            zeros(64),
        ),
    ),
    OpenCLCase(
        "sw",
        r"""
int g(int x){
    switch(x&7){
        case 0:return 5;
        case 1:case 2:x+=3;
        case 3:x*=2;
        break;
        default:x=-x;
    }
    return x;
}
__kernel void sw(__global const int*a,__global int*o){
    int i=get_global_id(0);
    int r=0;
    for(int j=0; j<10; j++){
        if(j==(a[i]&7))continue;
        if(j>7)break;
        switch(j){
            case 2:continue;
            case 4:r+=100;
            break;
            case 5:{
                r+=7;
                break;
            }
            default:r++;
        }
        r+=g(j+a[i]);
    }
    do{
        r--;
    }
    while(r>1000);
    o[i]=r;
}
""",
        (
            integers(64),
            zeros(64, "i4"),
        ),
    ),
    OpenCLCase(
        "ptr",
        r"""
__constant int T[2][3]={ {
    1,2,3
}
,{
    4,5,6
}
}
;
__kernel void pt(__global const int*a,__global int*o){
int i=get_global_id(0);
int loc[4]={ 1,2};
int*p=i&1?loc:loc+2;
*p+=a[i];
__global const int*q=a+i;
int n=0;
while(q<a+64&&n<3){
    loc[n+1]+=*q++;
    n++;
}
int*e=&loc[3];
o[i]=loc[0]+loc[1]*2+loc[2]*3+*e+(int)(e-p)+T[i&1][i%3];
}
""",
        (
            integers(64),
            zeros(64, "i4"),
        ),
    ),
    OpenCLCase(
        "shuf",
        r"""
__kernel void sh(__global const float4*a,__global float4*o){
    int i=get_global_id(0);
    o[i]=shuffle(a[i],(uint4)(3,2,1,0))+shuffle2(a[i],a[i]*2.0f,(uint4)(7,0,5,2));
    float s[4];
    vstore4(a[i],0,s);
    o[i].w=s[2];
    float2 t=(float2)(s[0]);
    t/=3.0f;
    o[i].xy=-t;
}
""",
        (
            floats(256),
            zeros(256),
        ),
    ),
    OpenCLCase(
        "lng",
        r"""
__kernel void lg(__global const long*a,__global long*o){
    size_t i=get_global_id(0);
    long x=a[i];
    ulong y=(ulong)x*0x9e3779b97f4a7c15UL;
    o[i]=(long)(y>>13)+x/3+mul_hi(x,x<<20)+(long)get_global_size(0)+as_long((double)x);
}
""",
        (
            np.random.default_rng(2).integers(-(2**40), 2**40, 64),
            zeros(64, "i8"),
        ),
    ),
    OpenCLCase(
        "dim2",
        r"""
__kernel void d2(__global int*o){
    size_t x=get_global_id(0),y=get_global_id(1);
    o[y*get_global_size(0)+x]=(int)(x*10+y+get_local_id(1)*1000+get_group_id(1)*100+get_num_groups(0)+get_work_dim());
}
""",
        (zeros(64, "i4"),),
        (8, 8),
        (4, 2),
    ),
    OpenCLCase(
        "half",
        r"""
__kernel void hf(__global const half*a,__global float*o,__global half*b){
    int i=get_global_id(0);
    float x=vload_half(i,a);
    o[i]=x*2.0f;
    vstore_half(x+1.0f,i,b);
}
""",
        (
            floats(64).astype("f2"),
            zeros(64),
            zeros(64, "f2"),
        ),
    ),
    OpenCLCase(
        "dbl",
        r"""
__kernel void db(__global const double*a,__global double*o){
    int i=get_global_id(0);
    double x=a[i];
    o[i]=fma(x,x,1.0)+sqrt(fabs(x))+x/3+floor(x)+(double)(float)x;
}
""",
        (
            np.random.default_rng(4).random(64),
            zeros(64, "f8"),
        ),
    ),
    OpenCLCase(
        "tern",
        r"""
__kernel void te(__global const int4*a,__global int4*o){
    int i=get_global_id(0);
    int4 v=a[i];
    o[i]=v>0?v:-v;
    o[i]+=select(v,v*2,v<5)+(i&1?v:v.wzyx);
    o[i].x+=i>3?a[i].y:0;
    o[i]<<=2;
    o[i]&=~3;
    uint4 w=as_uint4(v)>>3;
    o[i]^=as_int4(w);
    short8 s8=as_short8(v);
    o[i].z+=s8.s5;
}
""",
        (
            integers(256),
            zeros(256, "i4"),
        ),
    ),
    OpenCLCase(
        "more_integers",
        r"""
__kernel void more_integers(__global const int*a,__global const uint*u,__global int*o,__global long*l){
    int i=get_global_id(0);
    int x=a[i],y=a[63-i];
    uint v=u[i],w=u[63-i];
    o[i]=mad_sat(x*4000,y*3000,x)^(int)mad_sat(v,w,v)^(int)mad_hi(v,w,v)^convert_char_sat(x);
    short4 s=mad_sat(as_short4(((long)x<<32)|v),(short4)(300),(short4)(7));
    o[i]^=s.x^s.y<<4^s.z<<8^s.w<<12;
    l[i]=mad_sat((long)x<<40,(long)y<<20,(long)y)^(long)mad_sat((ulong)v<<20,(ulong)w,3UL);
    int4 q=(int4)(x,y,i,3);
    for(int j=0;j<4;j++) o[i]+=q[(j+i)&3]*j;
    q[i&3]=9;
    o[i]+=q.x+q.y*2+q.z*3+q.w*5;
    o[i]+=pown((float)(x&3),2)+ilogb((float)(x|1)+0.5f);
}
""",
        (integers(64), words(64), zeros(64, "i4"), zeros(64, "i8")),
    ),
    OpenCLCase(
        "more_floats",
        r"""
__kernel void more_floats(__global const float*a,__global float*o,__global int*k){
    int i=get_global_id(0),e,q;
    float x=a[i],f,r=0;
    r+=frexp(x,&e);
    r+=remquo(x,0.75f,&q);
    k[i]=e*100+(q&7);
    r+=fract(x,&f)+f;
    r+=rootn(x,3)+maxmag(x,1.5f)+minmag(x,-1.5f)+fdim(x,0.5f)+fdim(INFINITY,INFINITY);
    float4 v=(float4)(x,-x,0.0f,1e6f);
    int4 ev;
    float4 m=frexp(v,&ev);
    r+=m.x-m.y+m.z+m.w+sinpi(8.0f)+cospi(1e30f);
    k[i]+=ev.x+ev.y+ev.z+ev.w;
    o[i]=r;
}
""",
        (floats(64), zeros(64), zeros(64, "i4")),
    ),
    OpenCLCase(
        "unnamed",
        r"""
#define FIRST(v) v.first
#define first s0
#define LEAST(a,b) (float2)(fmin(a.x,b.x),fmin((a).y,b.y))
#define TURNED(v) (v).hi.yx
typedef struct { union { float4 low; float each[4]; }; int n; struct { int a,b; } pair; } Box;
__kernel void unnamed(__global Box*b,__global float*o){
    int i=get_global_id(0);
    float4 v=b[i].low;
    Box c=b[i];
    c.each[1]+=2.0f;
    c.low.z=1.5f;
    o[i]=FIRST(v)+c.low.y*10+c.each[2]+LEAST(v.xy,c.low.zw).y+TURNED(v).x+c.pair.b+"abc"[i&1];
    b[i]=c;
}
""",
        (words(64 * 8) & np.uint32(0x3FFFFFFF), zeros(64)),
    ),
)
