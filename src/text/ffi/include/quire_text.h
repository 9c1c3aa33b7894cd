// The C ABI of the Rust library quire_text.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

uint32_t quire_text_abi_version(void);

#ifdef __cplusplus
}
#endif
