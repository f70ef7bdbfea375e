#include "host_only.h"
