//! The `trainyard` binary. It only composes: what it composes is in `up` and in the other crates.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

mod backup;
mod ephemeral;
mod evidence;
mod history;
mod operator;
mod parts;
mod pki;
mod shells;
mod spdy;
mod streams;
mod up;
mod usage;

use cli::args::{Cli, Command};
use std::pin::Pin;
use std::process::ExitCode;

/// Objects are trees of many small parts, made and dropped by the thousand: a fifth of the work is the allocator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // a shim is one thread and no runtime, from its first instruction on
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "shim") {
        return node::shim::main(words);
    }
    cli::complete::answer_shell();
    let Cli { global, command } = match cli::usage::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    if !matches!(command, Command::Up(_) | Command::Operator(_) | Command::Restore(_)) {
        end_with_the_reader();
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("the process may have threads");
    // boxed: else all of it is compiled once for each way in which a runtime can block
    let work: Pin<Box<dyn Future<Output = _>>> = Box::pin(async {
        match command {
            Command::Up(args) => up::up(&args, &global).await,
            Command::Kubeconfig(args) if args.user.is_some() => up::kubeconfig_of(&args, &global),
            Command::Backup(args) => backup::backup(&args, &global).await,
            Command::Restore(args) => backup::restore(&args, &global),
            Command::Operator(args) => operator::operator(&args, &global).await,
            Command::Doctor(args) => {
                cli::doctor(&args, &global, trainyard::install::built_in()).await.map_err(up::UpError::from)
            }
            Command::Shim(_) => unreachable!("handled before the runtime was started"),
            command => cli::execute(command, &global).await.map_err(up::UpError::from),
        }
    });
    let result = runtime.block_on(work);
    // readers that wait for a terminal or a pipe are not waited for
    runtime.shutdown_background();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            node::say!("{}", error.render());
            ExitCode::from(error.exit_code())
        }
    }
}

/// `trainyard get | head -1` ends when nobody reads on, as other programs do: Rust ignores SIGPIPE, and printing would panic.
#[expect(unsafe_code, reason = "setting a signal's default action is safe before any thread has been started")]
fn end_with_the_reader() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: no other thread runs yet, and the default action runs no code of ours
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}
