//! The `trainyard` binary: parses the command line and starts what it names. The parts are in `up` and in the other crates.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

mod agent;
mod backup;
mod balance;
mod built_in;
mod damaged;
mod dashboard;
mod direct;
mod ephemeral;
mod initialize;
mod machines;
mod operator;
mod parts;
mod pki;
mod prometheus;
mod relay;
mod streams;
mod tunnels;
mod up;
mod usage;

use grammar::{Cli, Command, Global, MpiWaitArgs, ServerCommand};
use node::mpi_wait::Wait;
use std::ffi::OsString;
use std::num::NonZero;
use std::os::unix::ffi::OsStringExt;
use std::pin::Pin;
use std::process::ExitCode;
use up::UpError;

/// Objects are trees of many small parts, made and dropped by the thousand: a fifth of the work is the allocator's.
#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;

fn main() -> ExitCode {
    // a shim is one thread and no runtime, from its first instruction on
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "shim") {
        return node::shim::main(words);
    }
    if let Some(words) = sky_words(std::env::args_os()) {
        return ExitCode::from(cli::sky::main(&words));
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    let pod = nix::unistd::gethostname().unwrap_or_default();
    let variable = std::env::var(initialize::KIND).ok();
    let words = match initialize::called(&words, variable.as_deref(), &pod.to_string_lossy()) {
        None => words,
        Some(Ok(words)) => words,
        Some(Err(why)) => {
            node::say!("error: {why}");
            return ExitCode::from(2);
        }
    };
    cli::complete::answer_shell();
    let (words, plugin) = cli::plugin::words(words);
    let Cli { mut global, command } = match cli::parse(&words) {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    global.plugin = plugin;
    let work: Work<'_> = match command {
        // one thread, and no runtime
        Command::Shim(args) => return node::shim::main(args.args),
        Command::Server(command) => return serve(command, &global),
        Command::Client(command) => Box::pin(async { cli::execute(command, &global).await.map_err(UpError::from) }),
        Command::Local(command) => Box::pin(async { cli::locally(command, &global).await.map_err(UpError::from) }),
    };
    end_with_the_reader();
    carry_out(runtime(), work)
}

/// Starts what a command asks for with the parts that this binary has.
fn serve(command: ServerCommand, global: &Global) -> ExitCode {
    if let ServerCommand::Up(_) = command {
        // never comes back where there is a token to hide
        if let Err(error) = hide_token() {
            node::say!(
                "error: cannot start again without the token in the arguments: {error}; give it as TRAINYARD_TOKEN"
            );
            return ExitCode::FAILURE;
        }
    }
    let mut builder = runtime();
    match command {
        ServerCommand::Up(_) => {
            // the first look at thousands of objects takes seconds: requests do not wait for it
            let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
            builder.worker_threads(processors.saturating_add(1));
        }
        ServerCommand::Node(_) | ServerCommand::Operator(_) | ServerCommand::Balance(_) | ServerCommand::Restore(_) => {
        }
        ServerCommand::Initialize(_) => {
            end_with_the_reader();
            // each thread keeps memory of its own, and a disk has no use for as many as there are streams
            builder.max_blocking_threads(initialize::WRITERS);
        }
        _ => end_with_the_reader(),
    }
    carry_out(builder, Box::pin(served(command, global)))
}

async fn served(command: ServerCommand, global: &Global) -> Result<u8, UpError> {
    match command {
        ServerCommand::Up(args) => up::up(&args, global).await,
        ServerCommand::Node(args) => agent::node(&args, global).await,
        ServerCommand::Kubeconfig(args) if args.node.is_some() => up::kubeconfig_of_node(&args, global).await,
        ServerCommand::Kubeconfig(args) if args.user.is_some() => up::kubeconfig_of(&args, global),
        ServerCommand::Kubeconfig(_) => cli::daemon::kubeconfig(global).map_err(UpError::from),
        ServerCommand::PrometheusConfig(args) => prometheus::config(&args, global).await,
        ServerCommand::Backup(args) => backup::backup(&args, global).await,
        ServerCommand::Restore(args) => backup::restore(&args, global),
        ServerCommand::Damaged(args) => damaged::damaged(&args, global).await,
        ServerCommand::Operator(args) => operator::operator(&args, global).await,
        ServerCommand::Doctor(args) => cli::doctor(&args, global, built_in::built_in()).await.map_err(UpError::from),
        ServerCommand::Initialize(args) => Ok(initialize::initialize(&args).await),
        ServerCommand::MpiWait(MpiWaitArgs { hostfile, port, timeout }) => {
            Ok(node::mpi_wait::wait(&Wait { hostfile, ports: port, timeout }).await)
        }
        ServerCommand::Balance(args) => balance::balance(&args, global).await,
        ServerCommand::Relay(args) => Ok(relay::relay(&args).await),
    }
}

fn runtime() -> tokio::runtime::Builder {
    tokio::runtime::Builder::new_multi_thread()
}

/// The work of a command. It is boxed: otherwise all of it would be compiled once for each way in which a runtime can block.
type Work<'a> = Pin<Box<dyn Future<Output = Result<u8, UpError>> + 'a>>;

/// Runs the work to its end and returns the exit code.
fn carry_out(mut builder: tokio::runtime::Builder, work: Work<'_>) -> ExitCode {
    let runtime = builder.enable_all().on_thread_park(memory::on_park).build().expect("the process may have threads");
    let result = runtime.block_on(work);
    // readers that wait for a terminal or a pipe are not waited for
    runtime.shutdown_background();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            node::say!("{}", cli::plugin::as_called(&error.render()));
            ExitCode::from(error.exit_code())
        }
    }
}

/// The words behind `sky`, where this program is called by a link of that name, or `sky` is its first word.
fn sky_words(mut words: impl Iterator<Item = OsString>) -> Option<Vec<String>> {
    let program = std::path::PathBuf::from(words.next()?);
    let is_sky = program.file_name().is_some_and(|name| name == "sky") || words.next()? == "sky";
    is_sky.then(|| words.map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Starts this program anew with `--token` in the environment, which only its user can read, and not in the arguments, which
/// everybody can.
fn hide_token() -> std::io::Result<()> {
    use std::os::unix::process::CommandExt;
    match without_token(std::env::args_os().skip(1)) {
        (_, None) => Ok(()),
        (words, Some(token)) => {
            let program = std::env::current_exe()?;
            Err(std::process::Command::new(program).args(words).env("TRAINYARD_TOKEN", token).exec())
        }
    }
}

/// The arguments without `--token` and its value, and the value that counts, which is the last.
fn without_token(words: impl Iterator<Item = OsString>) -> (Vec<OsString>, Option<OsString>) {
    let (mut kept, mut token) = (Vec::new(), None);
    let mut words = words;
    while let Some(word) = words.next() {
        if word == "--" {
            kept.push(word);
            kept.extend(words.by_ref());
        } else if word == "--token" {
            token = words.next();
        } else if let Some(value) = word.as_encoded_bytes().strip_prefix(b"--token=") {
            token = Some(OsString::from_vec(value.to_vec()));
        } else {
            kept.push(word);
        }
    }
    (kept, token)
}

/// `trainyard get | head -1` ends when nobody reads on, as other programs do: Rust ignores SIGPIPE, and printing would panic.
#[expect(unsafe_code, reason = "setting a signal's default action is safe before any thread has been started")]
fn end_with_the_reader() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: no other thread runs yet, and the default action runs no code of ours
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sky_is_a_word_or_a_name() {
        for (words, rest) in [
            ("/usr/bin/sky launch -h", Some("launch -h")),
            ("trainyard sky gpus list", Some("gpus list")),
            ("trainyard run sky", None),
            ("sky", Some("")),
            ("trainyard", None),
        ] {
            let found = sky_words(words.split(' ').map(OsString::from));
            assert_eq!(found.map(|words| words.join(" ")).as_deref(), rest, "{words}");
        }
    }

    #[test]
    fn the_token_is_taken_out_of_the_arguments() {
        for (words, left, token) in [
            ("up --token a --detach", "up --detach", Some("a")),
            ("up --token=a=b --token=", "up", Some("")),
            ("up -- --token=a", "up -- --token=a", None),
            ("up", "up", None),
        ] {
            let (kept, found) = without_token(words.split(' ').map(OsString::from));
            assert_eq!((kept.join(" ".as_ref()), found), (left.into(), token.map(OsString::from)), "{words}");
        }
    }
}
