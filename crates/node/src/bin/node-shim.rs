//! The shim alone, for this crate's tests; the product runs it as `trainyard shim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    node::shim::main(std::env::args_os().skip(1))
}
