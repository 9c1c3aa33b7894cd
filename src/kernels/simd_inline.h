// Everything that a kernel body calls in its inner loops is inlined by force: compiled once per instruction
// set, never shared between them.
#pragma once

#define KERNEL_INLINE [[maybe_unused]] __attribute__((always_inline)) static inline
