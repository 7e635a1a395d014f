//! Command lines that cannot be parsed: one line says what the user probably meant.

use crate::command::{Cli, Command, LocalCommand};
use crate::jobs::RunArgs;
use api::near::{did_you_mean, near};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::ffi::{OsStr, OsString};

/// Words that other tools use for our commands, and the message for each.
const COMMANDS: [(&[&str], &str); 10] = [
    (&["ps", "list", "ls", "jobs", "job"], "to list jobs: trainyard get"),
    (
        &["stop", "cancel", "pause"],
        "trainyard suspend JOB stops its pods and keeps it for resume; trainyard delete JOB removes it",
    ),
    (&["kill", "rm", "remove"], "to stop a job and remove it: trainyard delete JOB"),
    (&["submit", "launch", "start", "train", "torchrun", "create"], "to start a job: trainyard run SCRIPT"),
    (&["log", "tail", "follow", "attach"], "to see what a job prints: trainyard logs -f JOB"),
    (&["show", "inspect", "info"], "to see all about a job: trainyard describe JOB"),
    (&["why", "diagnose", "debug"], "to see why a job waits or failed: trainyard explain JOB"),
    (&["continue", "unsuspend", "restart"], "to go on with a suspended job: trainyard resume JOB"),
    (&["serve", "server", "daemon"], "to start the control plane: trainyard up"),
    (&["completion"], "to complete in a shell: trainyard completions bash"),
];

/// Flags of other launchers, and our equivalents.
const FLAGS: [(&[&str], &str); 7] = [
    (&["nproc", "np", "nprocs", "num-procs", "nproc_per_node", "num-processes"], "nproc-per-node"),
    (&["num-nodes", "num_nodes", "nnodes", "workers", "num-workers", "replicas"], "nodes"),
    (&["gpu", "num-gpus", "gpus-per-node", "gpus_per_node"], "gpus"),
    (&["cpu", "num-cpus", "cpus-per-node"], "cpus"),
    (&["mem", "ram", "memory-per-node"], "memory"),
    (&["cwd", "chdir", "dir", "working-dir"], "workdir"),
    (&["background", "no-follow"], "detach"),
];

/// Flags of `run` that hardly any script has: after the script they are probably a mistake.
const OURS: [&str; 7] = ["nodes", "nproc-per-node", "runtime", "cpus", "memory", "gpus", "workdir"];

/// The output of `trainyard` without arguments: the everyday commands.
const SHORT: &str = "\
Run distributed training from one binary, on a laptop and on Kubernetes.

  trainyard run --nodes 2 train.py    run a script as a job and follow it
  trainyard get                       list jobs
  trainyard logs -f JOB               print what its ranks print
  trainyard explain JOB               show why it waits or failed, and what to do
  trainyard suspend JOB               stop it and keep it; resume continues it
  trainyard delete JOB                stop it and remove it
  trainyard --help                    all commands and flags
";

/// The exit code of wrong use.
const WRONG_USE: u8 = 2;

/// Why words are no valid command line, and what to print.
#[derive(Debug)]
pub enum Refused {
    /// No arguments: the everyday commands are printed.
    Nothing(&'static str),
    /// One line that says what is wrong, and what the user probably meant.
    Line(String),
    /// Clap's message is better. Help and version are no errors.
    Clap(clap::Error),
}

impl Refused {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Nothing(_) | Self::Line(_) => WRONG_USE,
            Self::Clap(error) => u8::try_from(error.exit_code()).unwrap_or(WRONG_USE),
        }
    }
}

/// Reads a command line; the program's name is the first word. `home`: the value of TRAINYARD_HOME.
///
/// Errors: why the words are no command line, or that help was requested.
pub fn read(words: &[OsString], home: Option<&OsStr>) -> Result<Cli, Refused> {
    if home.is_some_and(OsStr::is_empty) {
        return Err(Refused::Line("error: TRAINYARD_HOME is set and empty; unset it, or name a folder".to_owned()));
    }
    if words.len() < 2 {
        return Err(Refused::Nothing(SHORT));
    }
    match Cli::try_parse_from(words) {
        Ok(cli) => match namespace_of_nodes(&cli, words) {
            Some(line) => Err(Refused::Line(line)),
            None => Ok(cli),
        },
        Err(error) => Err(match meant(&error, words) {
            Some(line) => Refused::Line(format!("error: {line}")),
            None => Refused::Clap(error),
        }),
    }
}

/// One line for a command or flag that does not exist; `None` if clap's message is better.
fn meant(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let wrong = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => Some(no_command(wrong(ContextKind::InvalidSubcommand)?, words)),
        ErrorKind::UnknownArgument => {
            let word = wrong(ContextKind::InvalidArg)?;
            no_flag(word, words).or_else(|| too_many(word, words))
        }
        ErrorKind::ArgumentConflict
        | ErrorKind::MissingRequiredArgument
        | ErrorKind::InvalidValue
        | ErrorKind::ValueValidation
        | ErrorKind::TooManyValues => Some(in_one_line(error, words)),
        _ => None,
    }
}

/// Examples for commands that were typed without a required argument.
const EXAMPLES: [(&str, &str); 14] = [
    (" run", "trainyard run train.py"),
    (" logs", "trainyard logs -f JOB; trainyard get lists the jobs"),
    (" describe", "trainyard describe JOB; trainyard get lists the jobs"),
    (" explain", "trainyard explain JOB; trainyard get lists the jobs"),
    (" suspend", "trainyard suspend JOB; trainyard get lists the jobs"),
    (" resume", "trainyard resume JOB; trainyard get lists the jobs"),
    (" delete", "trainyard delete JOB, or trainyard delete --finished"),
    (" wait", "trainyard wait JOB --for complete"),
    (" exec", "trainyard exec JOB -- COMMAND"),
    (" shell", "trainyard shell JOB"),
    (" metrics", "trainyard metrics JOB"),
    (" apply", "trainyard apply -f job.yaml"),
    (" backup", "trainyard backup FILE"),
    (" restore", "trainyard restore FILE"),
];

/// Messages of clap that only programmers understand, and our replacements.
const PLAIN: [(&str, &str); 4] = [
    ("invalid digit found in string", "is no whole number"),
    ("cannot parse integer from empty string", "is no whole number"),
    ("number too large to fit in target type", "is too large"),
    ("the following required arguments were not provided:", "this is missing:"),
];

/// Clap's error on one line, with an example of the command.
fn in_one_line(error: &clap::Error, words: &[OsString]) -> String {
    let of = path(&Cli::command(), words).1;
    let told = error.render().to_string();
    let lines = told.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
    let mut line = lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned();
    if of.contains(" mpijob") {
        return line;
    }
    for (theirs, plain) in PLAIN {
        line = line.replace(theirs, plain);
    }
    match EXAMPLES.iter().find(|(command, _)| *command == of) {
        Some((_, example)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            format!("{line}; for example: {example}")
        }
        _ => format!("{line} (all flags: trainyard{of} --help)"),
    }
}

/// The innermost subcommand that the words name, and the words that lead there: ` odh mpijob get`.
fn path(command: &clap::Command, words: &[OsString]) -> (clap::Command, String) {
    let (mut found, mut path) = (command, String::new());
    for word in words.iter().skip(1) {
        if let Some(sub) = found.find_subcommand(word) {
            path = format!("{path} {}", sub.get_name());
            found = sub;
        }
    }
    (found.clone(), path)
}

fn no_command(word: &str, words: &[OsString]) -> String {
    let before: Vec<OsString> = words.iter().take_while(|other| *other != word).cloned().collect();
    let (of, path) = path(&Cli::command(), &before);
    if !path.is_empty() {
        let meant = did_you_mean(word, of.get_subcommands().map(clap::Command::get_name));
        return format!("trainyard{path} has no command {word:?}{meant} (all commands: trainyard{path} --help)");
    }
    if let Some((_, hint)) = COMMANDS.iter().find(|(words, _)| words.contains(&word)) {
        return format!("there is no command {word:?}; {hint}");
    }
    if word.ends_with(".py") {
        return format!("there is no command {word:?}; to run a script: trainyard run {word}");
    }
    let command = Cli::command();
    let names = command.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    format!("there is no command {word:?}{} (all commands: trainyard --help)", did_you_mean(word, names))
}

/// The flag as the user typed it, perhaps with `=value`. `None` for a word that is no flag.
fn no_flag(flag: &str, words: &[OsString]) -> Option<String> {
    let command = Cli::command();
    let (sub, of) = path(&command, words);
    if !flag.starts_with('-') && of == " status" {
        return Some(format!("status is the control plane's; where job {flag} stands: trainyard get {flag}"));
    }
    let at = |word: &str| words.iter().position(|other| other == word);
    if at("--").is_some_and(|dashes| at(flag).is_some_and(|flag| flag > dashes)) {
        return Some(format!("{flag} stands after --, and nothing there is a flag: write flags before it"));
    }
    let flag = flag.split('=').next().and_then(|flag| flag.strip_prefix("--"))?;
    if of == " logs" && flag == "worker" {
        return Some(
            "trainyard logs has no flag --worker; of an MPIJob: trainyard mpijob logs JOB --worker N".to_owned(),
        );
    }
    let flags: Vec<&str> = [&sub, &command]
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .filter(|arg| !arg.is_hide_set())
        .filter_map(clap::Arg::get_long)
        .collect();
    let known = FLAGS.iter().find(|(words, ours)| words.contains(&flag) && flags.contains(ours));
    let meant = match known {
        Some((_, ours)) => Some(*ours),
        None => near(flag, flags.iter().copied()),
    };
    let question = meant.map(|meant| format!("; did you mean --{meant}?")).unwrap_or_default();
    Some(format!("trainyard{of} has no flag --{flag}{question} (all flags: trainyard{of} --help)"))
}

/// A word or a short flag that a command for MPIJobs does not accept.
fn too_many(word: &str, words: &[OsString]) -> Option<String> {
    let (mut sub, of) = path(&Cli::command(), words);
    if of == " run" || of.is_empty() {
        return None;
    }
    let usage = sub.render_usage().to_string();
    // after the program's and the command's own names
    let takes = usage.split_once(&format!(" {}", sub.get_name())).map_or("", |(_, takes)| takes.trim());
    Some(format!("trainyard{of} does not take {word:?}: its arguments are {takes} (all flags: trainyard{of} --help)"))
}

/// `run -n 4` probably means mpirun's number of processes; it would mean namespace 4.
fn namespace_of_nodes(cli: &Cli, words: &[OsString]) -> Option<String> {
    let namespace = cli.global.namespace.as_deref()?;
    let is_short =
        words.iter().any(|word| word.to_str().is_some_and(|word| word == "-n" || word == format!("-n{namespace}")));
    let is_number = namespace.chars().all(|c| c.is_ascii_digit());
    (matches!(cli.command, Command::Local(LocalCommand::Run(_))) && is_short && is_number).then(|| {
        format!(
            "error: -n is the namespace; did you mean --nodes {namespace} or --nproc-per-node {namespace}? (a namespace of that name: \
             --namespace {namespace})"
        )
    })
}

/// A note if the script receives a flag that is probably meant for `run`.
pub fn meant_for_us(args: &RunArgs) -> Option<String> {
    let flags = args.script_args().iter().map(|word| word.split('=').next().unwrap_or_default());
    let ours: Vec<&str> =
        flags.filter(|flag| flag.strip_prefix("--").is_some_and(|flag| OURS.contains(&flag))).collect();
    let first = ours.first()?;
    let script = args.script().display();
    Some(format!(
        "note: {} after {script} goes to the script; for trainyard, write it before: trainyard run {first} … {script}",
        ours.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &[&str]) -> String {
        let words: Vec<OsString> = [&["trainyard"], words].concat().into_iter().map(OsString::from).collect();
        match Cli::try_parse_from(&words) {
            Ok(cli) => namespace_of_nodes(&cli, &words).unwrap_or_else(|| panic!("{words:?} is right")),
            Err(error) => {
                assert_eq!(error.exit_code(), i32::from(WRONG_USE));
                meant(&error, &words).unwrap_or_else(|| error.to_string())
            }
        }
    }

    #[test]
    fn other_tools_words_lead_to_ours() {
        for (words, hint) in [
            (&["ps"][..], "trainyard get"),
            (&["list"], "trainyard get"),
            (&["ls", "-A"], "trainyard get"),
            (&["stop", "x"], "suspend JOB stops its pods and keeps it for resume; trainyard delete JOB removes it"),
            (&["cancel", "x"], "trainyard delete JOB removes it"),
            (&["kill", "x"], "trainyard delete JOB"),
            (&["submit", "train.py"], "trainyard run SCRIPT"),
            (&["train.py", "--lr", "1"], "trainyard run train.py"),
            (&["descirbe", "x"], "did you mean \"describe\"?"),
            (&["frobnicate"], "trainyard --help"),
            (&["run", "--nproc", "4", "t.py"], "did you mean --nproc-per-node?"),
            (&["run", "--np=4", "t.py"], "did you mean --nproc-per-node?"),
            (&["run", "--num-nodes", "4", "t.py"], "did you mean --nodes?"),
            (&["run", "--node", "4", "t.py"], "did you mean --nodes?"),
            (&["run", "--gpu", "4", "t.py"], "did you mean --gpus?"),
            (&["run", "--cpu", "4", "t.py"], "did you mean --cpus?"),
            (&["run", "--mem", "4", "t.py"], "did you mean --memory?"),
            (&["status", "j"], "where job j stands: trainyard get j"),
            (&["logs", "--folow", "j"], "did you mean --follow?"),
            (&["logs", "mpijob/j", "--worker", "1"], "trainyard mpijob logs JOB --worker N"),
            (&["logs", "--gpu", "j"], "trainyard logs has no flag --gpu (all flags: trainyard logs --help)"),
            (&["run", "-n", "4", "t.py"], "did you mean --nodes 4"),
            (&["run", "-n4", "t.py"], "did you mean --nodes 4"),
            (
                &["run", "--nodes", "two", "t.py"],
                "invalid value 'two' for '--nodes <N>': is no whole number (all flags",
            ),
            (&["run", "--nodes", "0", "t.py"], "invalid value '0' for '--nodes <N>'"),
            (&["run"], "this is missing: <SCRIPT>...; for example: trainyard run train.py"),
            (&["logs"], "for example: trainyard logs -f JOB"),
            (&["delete"], "trainyard delete --finished"),
            (&["describe", "a", "b"], "trainyard describe does not take \"b\""),
            (&["wait", "j", "--for", "done"], "possible values: complete"),
            (&["mpijob", "desribe", "j"], "trainyard mpijob has no command \"desribe\"; did you mean \"describe\"?"),
            (&["odh", "mpijob", "logs", "j", "--folow"], "did you mean --follow?"),
            (
                &["mpijob", "logs", "j", "--launcher", "--worker", "1"],
                "'--launcher' cannot be used with '--worker <N>'",
            ),
            (
                &["mpijob", "get", "a", "b"],
                "trainyard mpijob get does not take \"b\": its arguments are [OPTIONS] [NAME] (all flags",
            ),
            (
                &["mpijob", "logs", "a", "-c", "b"],
                "trainyard mpijob logs does not take \"-c\": its arguments are [OPTIONS] <NAME>",
            ),
            (
                &["mpijob", "create", "--", "-x", "--workers", "2"],
                "--workers stands after --, and nothing there is a flag",
            ),
            (
                &["mpijob", "scale", "a", "--workers", "99999999999"],
                "'99999999999' for '--workers <N>': must be 2147483647 or less",
            ),
            (&["mpijob", "scale", "a", "--workers", "two"], "'two' for '--workers <N>': is no whole number"),
            (&["mpijob", "logs", "a", "--worker", "-1"], "'-1' for '--worker <N>': must be 0 or more"),
            (&["mpijob", "wait", "a", "--timeout", "-1s"], "\"-1s\" is not a duration"),
            (
                &["mpijob", "create", "j", "--workers", "2"],
                "required arguments were not provided: --image <IMAGE> --command",
            ),
            (&["mpijob", "create", "j", "-f", "x.yaml"], "cannot be used with"),
            (&["mpijob", "create", "j", "--workers", "two"], "invalid value 'two' for '--workers <N>'"),
        ] {
            let line = told(words);
            assert!(line.contains(hint) && !line.contains('\n'), "{words:?}: {line}");
        }
    }

    #[test]
    fn words_of_other_tools_are_not_ours() {
        let command = Cli::command();
        let run = command.find_subcommand("run").expect("it is there");
        let flag = |flag: &str| run.get_arguments().any(|arg| arg.get_long().is_some_and(|long| flag == long));
        for (words, _) in COMMANDS {
            assert!(
                words.iter().all(|word| command.find_subcommand(word).is_none()),
                "{words:?}: a hint that nobody sees"
            );
        }
        for (words, ours) in FLAGS {
            assert!(words.iter().all(|word| !flag(word)) && flag(ours), "{ours}");
        }
        assert!(OURS.iter().all(|ours| flag(ours)));
    }

    #[test]
    fn numbers_are_namespaces_where_they_are_said_to_be() {
        for words in [&["run", "--namespace", "4", "t.py"][..], &["get", "-n", "4"], &["run", "-n", "team", "t.py"]] {
            let words: Vec<OsString> = [&["trainyard"], words].concat().into_iter().map(OsString::from).collect();
            let cli = Cli::try_parse_from(&words).expect("it is right");
            assert_eq!(namespace_of_nodes(&cli, &words), None);
        }
    }

    #[test]
    fn our_flags_after_the_script_are_noted_once() {
        let note = |words: &[&str]| match Cli::parse_from([&["trainyard", "run"], words].concat()).command {
            Command::Local(LocalCommand::Run(args)) => meant_for_us(&args),
            other => panic!("{other:?}"),
        };
        let told = note(&["t.py", "--nodes", "2", "--gpus=1"]).expect("both are ours");
        assert!(told.starts_with("note: --nodes, --gpus after t.py") && !told.contains('\n'), "{told}");
        assert_eq!(note(&["--nodes", "2", "t.py", "--epochs", "3", "--name", "n"]), None);
    }
}
