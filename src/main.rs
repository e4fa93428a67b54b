//! The `sandfork` command.

fn main() {}
