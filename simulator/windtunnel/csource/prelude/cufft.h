/* Types of cuFFT, whose functions are called by the host. */
#pragma once
#include "cuComplex.h"
typedef float cufftReal; typedef double cufftDoubleReal; typedef cuComplex cufftComplex; typedef cuDoubleComplex cufftDoubleComplex;
typedef int cufftHandle; typedef int cufftResult;
