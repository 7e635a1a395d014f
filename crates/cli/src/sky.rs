//! `trainyard sky`, and `sky` by a link of that name: SkyPilot's commands. What they print is worked out in the `sky` crate; here is
//! what a machine knows.

mod clusters;
pub(crate) mod names;
mod submit;
mod verbs;
mod words;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use ::sky::check::PathKind;
use ::sky::commands::{Parsed, commands, parse};
use ::sky::console::{Circumstances, catalogue_named, run};
use api::foreign::visible;
use client::Home;
use managed::launch;

use crate::exit;

/// Carries out the words behind `sky`, and returns the exit code.
pub fn main(words: &[String]) -> u8 {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let parsed = parse(&commands(), words);
    let completion = parsed.as_ref().ok().and_then(|_| verbs::refused::completion(words));
    let call = match parsed {
        Ok(Parsed::Call(call)) => Some(call),
        _ => None,
    };
    if let Some(line) = completion.or_else(|| call.as_ref().and_then(verbs::refused::option)) {
        return say("", &format!("{line}\n"), 1);
    }
    let named = catalogue_named(words);
    let folder = named.as_ref().map_or_else(|| home.join(offers::CATALOGUE), PathBuf::from);
    let catalogue = match offers::read_catalogue(&folder, named.is_some()) {
        Ok(catalogue) => catalogue,
        Err(error) => return say("", &format!("error: {}\n", api::error_chain(&error)), exit::USAGE),
    };
    let given = call.as_ref().map_or(&[][..], |call| call.values("config"));
    let (config, with) = match offers::settings(&home, given) {
        Ok(offers::Settings { map, given, without_effect }) => {
            let makes_machines = call
                .as_ref()
                .is_some_and(|call| matches!(call.path.as_str(), "sky launch" | "sky check" | "sky explain"));
            if makes_machines && !without_effect.is_empty() {
                let (keys, have) =
                    (without_effect.join("`, `"), if without_effect.len() == 1 { "has" } else { "have" });
                eprintln!("~/.sky/config.yaml: `{keys}` {have} no effect here");
            }
            (map, given)
        }
        Err(error) => return say("", &format!("error: {}\n", api::error_chain(&error)), 1),
    };
    let own = Home::find(clusters::choice().home.as_deref()).map(|own| own.kubeconfig()).unwrap_or_default();
    let mut at_hand = offers::observe(&home, config.as_ref(), &own, &catalogue);
    let enabled = at_hand.enabled.clone();
    let cluster = format!(
        "sky-{:04x}-{}",
        std::process::id() & 0xffff,
        std::env::var("USER").unwrap_or_else(|_| "user".to_owned())
    );
    let below_home = |path: &str| match path.strip_prefix('~') {
        Some(rest) => home.join(rest.trim_start_matches('/')),
        None => PathBuf::from(path),
    };
    let kind = |path: &str| match std::fs::metadata(below_home(path)) {
        Err(_) => PathKind::Missing,
        Ok(found) if found.is_dir() => PathKind::Folder,
        Ok(_) => PathKind::File,
    };
    let read = |path: &str| text_of(&below_home(path));
    let shown_folder = folder.display().to_string();
    let variable = |name: &str| std::env::var(name).ok();
    let known = at_hand.clone();
    let world = Circumstances {
        catalogue: &catalogue,
        catalogue_folder: &shown_folder,
        enabled: &enabled,
        makes: &launch::MAKES,
        nodes: &known.nodes,
        hosts: &[],
        pools: &known.pools,
        contexts: &known.contexts.all,
        unusable: &known.unusable,
        tried: &[],
        read: &read,
        path: &kind,
        variable: &variable,
        cluster: &cluster,
    };
    if let Some(call) = &call
        && let Some(verb) = verbs::Verb::of(call)
    {
        let catalog = named.and_then(|folder| Some(std::path::absolute(folder).ok()?.display().to_string()));
        return verbs::carry_out(verb, call, &world, verbs::Around { given: with, catalog });
    }
    if let Some(call) = &call {
        verbs::look(call, &world, &mut at_hand);
    }
    let hosts = call.as_ref().map_or_else(Vec::new, |call| verbs::look_for_gpus(call, &at_hand));
    let tried = call.as_ref().map_or_else(Vec::new, |call| offers::tried(call, &at_hand, &home, &enabled));
    let seen =
        Circumstances { nodes: &at_hand.nodes, hosts: &hosts, unusable: &at_hand.unusable, tried: &tried, ..world };
    let printed = run(words, &seen);
    say(&printed.out, &(printed.err + &printed.note), printed.code)
}

/// Bytes that a file may have whose text is read: by far more than any task or list of variables has.
const LONGEST: u64 = 16 << 20;

/// The text of a file.
fn text_of(path: &Path) -> Result<String, String> {
    if std::fs::metadata(path).is_ok_and(|found| found.len() > LONGEST) {
        return Err(format!("it has more than {} MiB", LONGEST >> 20));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("it is no text in UTF-8 (line {line}); save it as such")
    })
}

/// Prints, and hands on the exit code; a reader that has gone is no error.
fn say(out: &str, err: &str, code: u8) -> u8 {
    let out = words::as_typed(out);
    let _ = std::io::stdout().write_all(visible(&out).as_bytes()).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stderr().write_all(visible(&words::as_typed(err)).as_bytes());
    code
}
