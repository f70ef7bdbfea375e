/* Standard headers that only functions of the host use are empty: these functions are not run, and errors in them are notes. */
#pragma once
#include "cuda.h"
namespace std {}
