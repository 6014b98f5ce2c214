#include "kernels/cpu/kv_convert.h"
