//! Completion in shells: commands, flags and error codes from this binary; names of jobs, runtimes and namespaces from the server.
//!
//! The shell calls this binary at each Tab (`clap_complete`'s engine), so completion always fits the binary. A shell must not wait or be
//! written to: if the server does not answer soon, no names are offered, without a message.

use crate::choice;
use crate::exit;
use crate::plugin;
use crate::sky::names::with_names as sky_names;
use crate::soon::soon;
use clap::{Arg, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Zsh};
use client::{ClientError, Cluster, Kind, codes};
use grammar::{Cli, Global, Shell};
use std::ffi::OsString;
use std::path::PathBuf;

/// The variable by which the shell asks. One of our own: a `COMPLETE` of somebody else's must not silence us.
const VARIABLE: &str = "TRAINYARD_COMPLETE";
/// Zsh reads the file at the first Tab, as the body of `_trainyard`: that Tab is answered, too.
const ZSH_AUTOLOADED: &str = "
if [ \"$funcstack[1]\" = \"_trainyard\" ]; then
    _clap_dynamic_completer_trainyard \"$@\"
fi
";

/// Answers a shell or a kubectl that asks and ends the process; returns where none asks.
pub fn answer_shell() {
    let by_shell = std::env::var_os(VARIABLE).is_some();
    if !by_shell && !plugin::completes() {
        return;
    }
    // programs that kubeconfigs name for credentials may write there, in the middle of the user's line
    if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stderr(nowhere);
    }
    if by_shell {
        CompleteEnv::with_factory(command).var(VARIABLE).complete();
    } else {
        print!("{}", answer_kubectl(std::env::args_os().skip(1)));
        std::process::exit(i32::from(exit::OK));
    }
}

/// What kubectl takes from a plugin's completer: candidates with their help behind a tab, then what to do with them: 4 for
/// these alone, 0 to offer files where there are none.
fn answer_kubectl(words: impl IntoIterator<Item = OsString>) -> String {
    let mut line: Vec<OsString> = vec!["trainyard".into(), "odh".into()];
    line.extend(words);
    if line.len() == 2 {
        line.push(OsString::new());
    }
    let last = line.len().saturating_sub(1);
    let found = clap_complete::engine::complete(&mut command(), line, last, None).unwrap_or_default();
    let mut answer = String::new();
    for candidate in found.iter().filter(|candidate| !candidate.is_hide_set()) {
        answer.push_str(&candidate.get_value().to_string_lossy());
        if let Some(help) = candidate.get_help().map(ToString::to_string).filter(|help| !help.is_empty()) {
            answer.push('\t');
            answer.push_str(help.lines().next().unwrap_or_default());
        }
        answer.push('\n');
    }
    answer.push_str(if found.is_empty() { ":0\n" } else { ":4\n" });
    answer
}

/// Prints what makes a shell ask.
pub(crate) fn print(wanted: Shell) -> Result<u8, ClientError> {
    let shell: &dyn EnvCompleter = match wanted {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let name = "trainyard";
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, name, name, name, &mut script).expect("memory can be written");
    if matches!(wanted, Shell::Zsh) {
        script.extend(ZSH_AUTOLOADED.as_bytes());
    }
    print!("{}", String::from_utf8_lossy(&script));
    Ok(exit::OK)
}

/// The command line with a source of names for each argument that takes one.
fn command() -> clap::Command {
    let all = named(Cli::command()).mut_subcommand("sky", |stub| grammar::sky::in_place_of(stub, &sky_names));
    // the options of all commands are not options of sky's
    let is_sky = std::env::args().skip_while(|word| word != "--").nth(2).is_some_and(|word| word == "sky");
    if is_sky { all.mut_args(|arg| arg.global(false)) } else { all }
}

fn named(command: clap::Command) -> clap::Command {
    command.mut_args(with_names).mut_subcommands(named)
}

fn with_names(arg: Arg) -> Arg {
    let kinds: &'static [Kind] = match arg.get_id().as_str() {
        "job" | "jobs" => &[Kind::TrainJob],
        "runtime" => &[Kind::ClusterTrainingRuntime, Kind::TrainingRuntime],
        "search" => &[Kind::OptimizationJob],
        "mpijob" | "mpijobs" => &[Kind::MpiJob],
        "namespace" => &[Kind::Namespace],
        "subject" => {
            return arg.add(ArgValueCandidates::new(|| {
                let codes =
                    codes::meanings().map(|(code, meaning)| CompletionCandidate::new(code).help(Some(meaning.into())));
                names(&[Kind::TrainJob]).into_iter().chain(codes).collect()
            }));
        }
        "words" => return arg.add(ArgValueCompleter::new(PathCompleter::any())),
        _ => return arg,
    };
    arg.add(ArgValueCandidates::new(move || names(kinds)))
}

fn names(kinds: &'static [Kind]) -> Vec<CompletionCandidate> {
    let names = soon(move || async move { ask(kinds, &global(std::env::args_os())).await });
    names.into_iter().flatten().map(CompletionCandidate::new).collect()
}

/// Names of all kinds that may be listed.
async fn ask(kinds: &[Kind], global: &Global) -> Vec<String> {
    let Ok(cluster) = Cluster::existing(&choice(global)).await else { return Vec::new() };
    let mut names = Vec::new();
    for kind in kinds {
        names.extend(cluster.names(*kind).await.unwrap_or_default());
    }
    names
}

/// What the unfinished command line says of the server. The shell gives its words after `--`, kubectl gives those alone.
fn global(words: impl IntoIterator<Item = OsString>) -> Global {
    let home = std::env::var_os("TRAINYARD_HOME").map(PathBuf::from);
    let mut global =
        Global { home, kubeconfig: None, context: None, namespace: None, verbose: 0, plugin: plugin::completes() };
    let by_shell = !global.plugin;
    let mut words = words.into_iter().skip_while(|word| by_shell && word != "--").skip(1);
    while let Some(word) = words.next() {
        let word = word.to_string_lossy().into_owned();
        let (flag, joined) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if !["--home", "--kubeconfig", "--context", "--namespace", "-n"].contains(&flag) {
            continue;
        }
        let next = || words.next().map(|word| word.to_string_lossy().into_owned());
        let Some(value) = joined.or_else(next).filter(|value| !value.is_empty()) else { continue };
        match flag {
            "--home" => global.home = Some(value.into()),
            "--kubeconfig" => global.kubeconfig = Some(value.into()),
            "--context" => global.context = Some(value),
            _ => global.namespace = Some(value),
        }
    }
    global
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_still_stands() {
        command().debug_assert();
    }

    #[test]
    fn names_come_for_every_argument_that_takes_one() {
        let command = command();
        for (of, id) in [
            ("get", "job"),
            ("delete", "jobs"),
            ("logs", "job"),
            ("explain", "subject"),
            ("run", "runtime"),
            ("trials", "search"),
        ] {
            let sub = command.find_subcommand(of).unwrap_or_else(|| panic!("{of}"));
            let arg = sub.get_arguments().find(|arg| arg.get_id() == id).unwrap_or_else(|| panic!("{of} {id}"));
            assert!(arg.get::<ArgValueCandidates>().is_some(), "{of} {id}");
        }
    }

    #[test]
    fn kubectl_gets_candidates_and_what_to_do_with_them() {
        let told = |words: &[&str]| answer_kubectl(words.iter().map(OsString::from));
        assert!(told(&[]).contains("mpijob\tMPIJobs: "), "{}", told(&[]));
        let verbs = told(&["mpijob", ""]);
        for verb in ["create", "get", "describe", "logs", "delete", "suspend", "resume", "wait", "scale"] {
            assert!(verbs.lines().any(|line| line.starts_with(&format!("{verb}\t"))), "{verbs}");
        }
        assert!(verbs.ends_with("\n:4\n"));
        assert!(told(&["mpijob", "logs", "--wor"]).starts_with("--worker\t"));
        assert_eq!(told(&["mpijob", "wait", "x", "--for", "susp"]), "suspended\n:4\n");
        assert_eq!(told(&["mpijob", "create", "--image", "zzz"]), ":0\n");
    }

    #[test]
    fn the_server_is_that_of_the_unfinished_line() {
        let words =
            ["trainyard", "--", "trainyard", "-n", "team", "get", "--context=x", "--kubeconfig", "/k", "--home"];
        let global = global(words.map(OsString::from));
        assert_eq!((global.namespace.as_deref(), global.context.as_deref()), (Some("team"), Some("x")));
        assert_eq!(global.kubeconfig, Some("/k".into()));
    }
}
