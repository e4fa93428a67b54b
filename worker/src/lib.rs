//! The native half of a Sandfork zygote.
