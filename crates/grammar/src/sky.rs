//! The commands of `sky` as types of clap, for shell completion and man pages. The `sky` crate parses the command lines.

use ::sky::commands::{Kind, Param, commands, meaning};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};

/// Leaks the text: clap needs `'static` strings, and the process ends after it answers.
fn fixed(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// Adds the completion of an argument of a command (`sky logs`).
pub type Complete<'a> = &'a dyn Fn(&str, Arg) -> Arg;

/// `sky` with all its commands.
pub fn command(complete: Complete<'_>) -> Command {
    let all = commands();
    below(&all, "sky", complete)
}

/// The same, with the description that `trainyard` gives the command.
pub fn in_place_of(sky: Command, complete: Complete<'_>) -> Command {
    let made = command(complete);
    let made = match sky.get_about() {
        Some(about) => made.about(about.clone()),
        None => made,
    };
    match sky.get_long_about() {
        Some(about) => made.long_about(about.clone()),
        None => made,
    }
}

fn below(all: &[::sky::commands::Command], path: &str, complete: Complete<'_>) -> Command {
    let Some(command) = all.iter().find(|command| command.path == path) else { return Command::new(fixed(path)) };
    let mut made = Command::new(fixed(command.word())).about(meaning(path)).hide(command.hidden);
    made = made.disable_help_flag(true).disable_help_subcommand(true).disable_version_flag(true);
    made = made.arg(Arg::new("help").long("help").short('h').help("Print this help").action(ArgAction::SetTrue));
    for param in &command.params {
        made = made.args(args(path, param, complete));
    }
    let is_below =
        |other: &&::sky::commands::Command| other.path.rsplit_once(' ').is_some_and(|(group, _)| group == path);
    made.subcommands(all.iter().filter(is_below).map(|command| below(all, &command.path, complete)))
}

/// A parameter, and the option that switches it off, if there is one.
fn args(path: &str, param: &Param, complete: Complete<'_>) -> Vec<Arg> {
    let id = fixed(&param.name);
    if param.is_argument() {
        let arg = Arg::new(id).help(meaning(id)).hide(param.hidden).required(param.required);
        let arg = if param.many { arg.num_args(usize::from(param.required)..) } else { arg };
        return vec![complete(path, arg)];
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
    [complete(path, on), off].into_iter().filter(|arg| arg.get_long().is_some() || arg.get_short().is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_commands_are_there_and_consistent() {
        let tree = command(&|_, arg| arg);
        tree.clone().debug_assert();
        for known in commands() {
            let mut at = &tree;
            for word in known.path.split(' ').skip(1) {
                at = at.find_subcommand(word).unwrap_or_else(|| panic!("{}", known.path));
            }
            assert_eq!(at.get_about().is_none(), meaning(&known.path).is_empty(), "{}", known.path);
        }
    }
}
