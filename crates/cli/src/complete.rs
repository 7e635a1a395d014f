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
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The variable by which the shell asks. One of our own: a `COMPLETE` of somebody else's must not silence us.
const VARIABLE: &str = "TRAINYARD_COMPLETE";
/// Registers for `sky` what was registered for `trainyard`. A completion that another `sky` has already stays.
const BASH_MORE: &str = r#"
complete -p sky &>/dev/null || eval "$(complete -p trainyard) sky"
"#;
/// The first line, by which zsh knows what the file is for.
const ZSH_COMMANDS: [&str; 2] = ["#compdef trainyard\n", "#compdef trainyard sky\n"];
/// Zsh reads the file at the first Tab, as the body of `_trainyard`: that Tab is answered, too.
const ZSH_MORE: &str = "
[[ ${_comps[sky]-_trainyard} != _trainyard ]] || compdef _clap_dynamic_completer_trainyard sky
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
        CompleteEnv::with_factory(for_shell).var(VARIABLE).complete();
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
    let script = |command: &str| {
        let mut script = Vec::new();
        shell.write_registration(VARIABLE, name, command, name, &mut script).expect("memory can be written");
        String::from_utf8_lossy(&script).into_owned()
    };
    let script = match wanted {
        Shell::Bash => script(name) + BASH_MORE,
        Shell::Zsh => script(name).replacen(ZSH_COMMANDS[0], ZSH_COMMANDS[1], 1) + ZSH_MORE,
        Shell::Fish => script(name) + &script("sky"),
    };
    print!("{script}");
    Ok(exit::OK)
}

/// The command line of the program whose line the shell completes. The shell gives the line's words after `--`.
fn for_shell() -> clap::Command {
    let mut line = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let program = line.next().unwrap_or_default();
    if is_sky(&program) {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let path = std::env::var_os("PATH").unwrap_or_default();
        return match file_of(Path::new(&program), &home, &path) {
            Some(file) if is_python(&file) => foreign(),
            _ => grammar::sky::command(&sky_names),
        };
    }
    let all = command();
    // the options of all commands are not options of sky's
    if line.next().is_some_and(|word| word == "sky") { all.mut_args(|arg| arg.global(false)) } else { all }
}

/// Whether a program has the name `sky`, as a link to this one may.
pub(crate) fn is_sky(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "sky")
}

/// The file of a program that is typed like this; `None` if there is none, as for an alias.
fn file_of(program: &Path, home: &Path, path: &OsStr) -> Option<PathBuf> {
    let may_run =
        |file: &PathBuf| file.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
    if program.components().count() > 1 {
        let file = program.strip_prefix("~").map_or_else(|_| program.to_owned(), |rest| home.join(rest));
        return Some(file).filter(may_run);
    }
    std::env::split_paths(path).map(|folder| folder.join(program)).find(may_run)
}

/// Whether a file is a Python script, as SkyPilot's own `sky` is. If the path of Python has blanks, the second line names it.
fn is_python(file: &Path) -> bool {
    let mut start = Vec::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(1024).read_to_end(&mut start));
    let names_it = |line: &[u8]| line.windows(6).any(|part| part == b"python");
    read.is_ok() && start.starts_with(b"#!") && start.split(|byte| *byte == b'\n').take(2).any(names_it)
}

/// Another program of the name `sky`: names of files are offered, as without us.
fn foreign() -> clap::Command {
    let words = Arg::new("words").num_args(0..).allow_hyphen_values(true).trailing_var_arg(true);
    let sky = clap::Command::new("sky").disable_help_flag(true).disable_version_flag(true);
    sky.arg(words.add(ArgValueCompleter::new(PathCompleter::any())))
}

/// The command line with a source of names for each argument that takes one.
fn command() -> clap::Command {
    named(Cli::command()).mut_subcommand("sky", |stub| grammar::sky::in_place_of(stub, &sky_names))
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
    fn another_program_named_sky_is_recognised() {
        let root = std::env::temp_dir().join(format!("trainyard-complete-{}", std::process::id()));
        for (name, text, is_foreign) in [
            ("binary", "\x7fELF python", false),
            ("wrapper", "#!/bin/sh\nexec trainyard sky \"$@\"\n# python\n", false),
            ("pip", "#!/opt/sky/bin/python3\nimport sys\n", true),
            ("blanks", "#!/bin/sh\n'''exec' \"/opt/my sky/bin/python\" \"$0\" \"$@\"\n", true),
        ] {
            let (folder, file) = (root.join(name), root.join(name).join("sky"));
            std::fs::create_dir_all(&folder).expect("it can be made");
            std::fs::write(&file, text).expect("it can be written");
            assert_eq!(file_of(&file, &root, OsStr::new("")), None, "{name} may not be run");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("it can be set");
            let on_path = file_of(Path::new("sky"), &root, folder.as_os_str());
            assert_eq!(on_path, Some(file), "{name}");
            assert_eq!(file_of(&Path::new("~").join(name).join("sky"), &root, OsStr::new("")), on_path);
            assert_eq!(on_path.as_deref().map(is_python), Some(is_foreign), "{name}");
        }
        assert_eq!(file_of(Path::new("sky"), &root, root.as_os_str()), None);
        std::fs::remove_dir_all(root).expect("it can be removed");
        foreign().debug_assert();
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
