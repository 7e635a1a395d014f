//! The commands of `sky` as clap has them, for completion in shells and for man pages. Command lines are read by the `sky` crate.

use super::clusters::Sky;
use crate::complete::soon;
use ::sky::commands::{Kind, Param, commands, meaning};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter};
use client::Home;
use placement::Catalogue;
use std::path::PathBuf;

/// Leaks the text: clap needs `'static` strings, and the process ends after it answers.
fn fixed(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// `sky` with all of its commands.
pub(crate) fn command() -> Command {
    let all = commands();
    below(&all, "sky")
}

/// The same, with the description that `trainyard` gives the command.
pub(crate) fn in_place_of(sky: Command) -> Command {
    let made = command();
    let made = match sky.get_about() {
        Some(about) => made.about(about.clone()),
        None => made,
    };
    match sky.get_long_about() {
        Some(about) => made.long_about(about.clone()),
        None => made,
    }
}

fn below(all: &[::sky::commands::Command], path: &str) -> Command {
    let Some(command) = all.iter().find(|command| command.path == path) else { return Command::new(fixed(path)) };
    let mut made = Command::new(fixed(command.word())).about(meaning(path)).hide(command.hidden);
    made = made.disable_help_flag(true).disable_help_subcommand(true).disable_version_flag(true);
    made = made.arg(Arg::new("help").long("help").short('h').help("Print this help").action(ArgAction::SetTrue));
    for param in &command.params {
        made = made.args(args(path, param));
    }
    let is_below =
        |other: &&::sky::commands::Command| other.path.rsplit_once(' ').is_some_and(|(group, _)| group == path);
    made.subcommands(all.iter().filter(is_below).map(|command| below(all, &command.path)))
}

/// A parameter, and the option that switches it off, if it has one.
fn args(path: &str, param: &Param) -> Vec<Arg> {
    let id = fixed(&param.name);
    if param.is_argument() {
        let arg = Arg::new(id).help(meaning(id)).hide(param.hidden).required(param.required);
        let arg = if param.many { arg.num_args(usize::from(param.required)..) } else { arg };
        return vec![with_names(path, arg)];
    }
    let named = |id: &'static str, options: &[String]| {
        let mut arg = Arg::new(id).help(meaning(fixed(&param.name))).hide(param.hidden);
        for option in options {
            match (option.strip_prefix("--"), option.strip_prefix('-').map(|short| short.chars().collect::<Vec<_>>())) {
                (Some(long), _) if arg.get_long().is_none() => arg = arg.long(fixed(long)),
                (Some(long), _) => arg = arg.alias(fixed(long)),
                (None, Some(letters)) if letters.len() == 1 && arg.get_short().is_none() => {
                    arg = letters.first().map_or(arg.clone(), |letter| arg.clone().short(*letter));
                }
                _ => {}
            }
        }
        arg
    };
    let on = named(id, &param.opts);
    let on = match &param.kind {
        _ if param.flag => on.action(ArgAction::SetTrue),
        Kind::Choice(list) => {
            let choices: Vec<&'static str> = list.iter().map(|one| fixed(one)).collect();
            on.value_parser(PossibleValuesParser::new(choices)).ignore_case(param.any_case)
        }
        Kind::Text(name) if name == "directory" => on.value_name("DIR").value_hint(clap::ValueHint::DirPath),
        _ => on.value_name(fixed(&id.to_uppercase())),
    };
    let on = if param.many && !param.flag { on.action(ArgAction::Append) } else { on };
    let on = if param.bare.is_some() { on.num_args(0..=1) } else { on };
    let off = named(fixed(&format!("no_{id}")), &param.off).action(ArgAction::SetTrue);
    [with_names(path, on), off]
        .into_iter()
        .filter(|arg| arg.get_long().is_some() || arg.get_short().is_some())
        .collect()
}

/// Adds completion of names to an argument that takes a name.
fn with_names(path: &str, arg: Arg) -> Arg {
    let of_cluster = ["launch", "exec", "status", "queue", "logs", "cancel", "stop", "start", "down", "autostop"]
        .contains(&path.strip_prefix("sky ").unwrap_or_default());
    match arg.get_id().as_str() {
        "cluster" | "clusters" if of_cluster => arg.add(ArgValueCandidates::new(clusters)),
        "jobs" | "job_ids" if of_cluster => arg.add(ArgValueCandidates::new(jobs)),
        "infra" | "infra_list" => arg.add(ArgValueCandidates::new(places)),
        "entrypoint" => arg.add(ArgValueCompleter::new(PathCompleter::any())),
        _ => arg,
    }
}

fn clusters() -> Vec<CompletionCandidate> {
    let names = soon(|| async {
        let all = Sky::running().await?.all().await.ok()?;
        Some(all.iter().map(|found| found.shown().to_owned()).collect::<Vec<_>>())
    });
    names.flatten().into_iter().flatten().map(CompletionCandidate::new).collect()
}

/// Job numbers, with names and states, of the cluster on the unfinished command line.
fn jobs() -> Vec<CompletionCandidate> {
    let Some(cluster) = cluster_of(std::env::args()) else { return Vec::new() };
    let jobs = soon(|| async move {
        let sky = Sky::running().await?;
        let found = sky.find(&cluster).await.ok()??;
        sky.jobs(found.name()).await.ok()
    });
    let candidate = |job: managed::jobs::Job| {
        let help = format!("{} {}", job.name, job.status.as_str());
        CompletionCandidate::new(job.id.to_string()).help(Some(help.into()))
    };
    jobs.flatten().into_iter().flatten().map(candidate).collect()
}

/// The first word of the unfinished line that is neither a command nor an option. The shell gives its words after `--`.
fn cluster_of(words: impl IntoIterator<Item = String>) -> Option<String> {
    let words = words.into_iter().skip_while(|word| word != "--").skip(1);
    let mut after = words.skip_while(|word| word != "sky").skip(2);
    after.find(|word| !word.starts_with('-') && !word.is_empty())
}

/// Values for `--infra`: this machine, pools, contexts.
fn places() -> Vec<CompletionCandidate> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let own = Home::find(None).map(|own| own.kubeconfig()).unwrap_or_default();
    let at_hand = offers::observe(&home, None, &own, &Catalogue::default());
    let pools = at_hand.pools.iter().map(|pool| format!("ssh/{pool}"));
    let contexts = at_hand.contexts.all.iter().map(|context| format!("k8s/{context}"));
    std::iter::once("local".to_owned()).chain(pools).chain(contexts).map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_commands_are_there_and_consistent() {
        let tree = command();
        tree.clone().debug_assert();
        for known in commands() {
            let mut at = &tree;
            for word in known.path.split(' ').skip(1) {
                at = at.find_subcommand(word).unwrap_or_else(|| panic!("{}", known.path));
            }
            assert_eq!(at.get_about().is_none(), meaning(&known.path).is_empty(), "{}", known.path);
        }
    }

    #[test]
    fn arguments_that_take_names_complete_them() {
        let tree = command();
        for (path, id) in [
            ("logs", "cluster"),
            ("logs", "job_ids"),
            ("cancel", "jobs"),
            ("down", "clusters"),
            ("launch", "cluster"),
            ("check", "infra_list"),
            ("launch", "infra"),
        ] {
            let command = tree.find_subcommand(path).unwrap();
            let arg = command.get_arguments().find(|arg| arg.get_id() == id).unwrap();
            assert!(arg.get::<ArgValueCandidates>().is_some(), "{path} {id}");
        }
    }

    #[test]
    fn the_cluster_is_that_of_the_unfinished_line() {
        let of = |line: &str| cluster_of(line.split(' ').map(str::to_owned));
        assert_eq!(of("trainyard -- trainyard sky logs --no-follow dev 1").as_deref(), Some("dev"));
        assert_eq!(of("trainyard -- trainyard sky logs"), None);
    }
}
