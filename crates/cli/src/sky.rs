//! `trainyard sky`, and `sky` by a link of that name: SkyPilot's commands. What they print is worked out in the `sky` crate; here is
//! what a machine knows.

mod clusters;
mod contexts;
mod git;
mod hand;
mod hosts;
mod logs;
mod settings;
mod ssh;
mod submit;
mod sync;
pub(crate) mod tree;
mod tried;
mod verbs;
mod words;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use ::sky::check::PathKind;
use ::sky::commands::{Parsed, commands, parse};
use ::sky::console::{World, catalogue_named, run};
use ::sky::value::{Map, Value};
use api::foreign::visible;
use placement::{Catalogue, Cloud};

use crate::exit;

/// Where SkyPilot keeps its price lists, below the home.
const CATALOGUE: &str = ".sky/catalogs/v8";
/// Clouds in the order in which they are tried; the others come behind them.
const FIRST: [Cloud; 5] = [Cloud::Aws, Cloud::Gcp, Cloud::Azure, Cloud::Lambda, Cloud::RunPod];
/// Where machines are made.
const MAKES: [Cloud; 3] = [Cloud::Local, Cloud::Ssh, Cloud::Kubernetes];

/// Carries out the words behind `sky`, and returns the exit code.
pub fn main(words: &[String]) -> u8 {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let call = match parse(&commands(), words) {
        Ok(Parsed::Call(call)) => Some(call),
        _ => None,
    };
    if let Some(line) = call.as_ref().and_then(verbs::refused::option) {
        return say("", &format!("{line}\n"), 1);
    }
    let named = catalogue_named(words);
    let folder = named.as_ref().map_or_else(|| home.join(CATALOGUE), PathBuf::from);
    let catalogue = match read_catalogue(&folder, named.is_some()) {
        Ok(catalogue) => catalogue,
        Err(message) => return say("", &format!("error: {message}\n"), exit::USAGE),
    };
    let given = call.as_ref().map_or(&[][..], |call| call.values("config"));
    let config = match settings::settings(&home, given) {
        Ok(settings::Settings { map, without_effect }) => {
            let makes_machines = call
                .as_ref()
                .is_some_and(|call| matches!(call.path.as_str(), "sky launch" | "sky check" | "sky explain"));
            if makes_machines && !without_effect.is_empty() {
                let (keys, have) =
                    (without_effect.join("`, `"), if without_effect.len() == 1 { "has" } else { "have" });
                eprintln!("~/.sky/config.yaml: `{keys}` {have} no effect here");
            }
            map
        }
        Err(message) => return say("", &format!("error: {message}\n"), 1),
    };
    let mut at_hand = hand::AtHand::of(&home, config.as_ref());
    let enabled = enabled(config.as_ref(), &catalogue, &at_hand);
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
    let world = World {
        catalogue: &catalogue,
        catalogue_folder: &shown_folder,
        enabled: &enabled,
        makes: &MAKES,
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
        return verbs::carry_out(verb, call, &world, at_hand);
    }
    if let Some(call) = &call {
        verbs::look(call, &world, &mut at_hand);
    }
    let hosts = call.as_ref().map_or_else(Vec::new, |call| verbs::look_for_gpus(call, &at_hand));
    let tried = call.as_ref().map_or_else(Vec::new, |call| tried::of(call, &at_hand, &home, &enabled));
    let seen = World { nodes: &at_hand.nodes, hosts: &hosts, unusable: &at_hand.unusable, tried: &tried, ..world };
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

/// The price lists of a folder: `CLOUD/vms.csv`, `CLOUD/images.csv`, `common/accelerators.csv`, `common/metadata.csv`. One that nobody
/// named may be missing.
fn read_catalogue(folder: &Path, named: bool) -> Result<Catalogue, String> {
    let shown = folder.display();
    if named && shown.to_string().contains("://") {
        return Err(format!("{shown} is no folder: fetch its price lists (`sky catalog import`) and name the folder."));
    }
    let mut catalogue = Catalogue::default();
    let clouds = match std::fs::read_dir(folder) {
        Ok(clouds) => clouds,
        Err(_) if !named => return Ok(catalogue),
        Err(error) => return Err(format!("the price lists in {shown} cannot be read: {error}")),
    };
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for cloud in clouds.flatten() {
        let name = cloud.file_name().to_string_lossy().into_owned();
        let list = std::fs::read_dir(cloud.path()).into_iter().flatten().flatten();
        files.extend(list.map(|file| (name.clone(), file.path())).filter(|(_, path)| path.is_file()));
    }
    for (cloud, path) in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !matches!(name.as_str(), "vms.csv" | "images.csv" | "accelerators.csv" | "metadata.csv") {
            continue;
        }
        let shown = path.display();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
        catalogue.add(&cloud, &name, &text).map_err(|error| format!("{shown} is no price list: {error}"))?;
    }
    Ok(catalogue)
}

/// Clouds that may be used: those of `allowed_clouds` in `~/.sky/config.yaml`, else those whose price lists are here, this machine, and
/// SSH pools and Kubernetes clusters where there are any.
fn enabled(config: Option<&Map>, catalogue: &Catalogue, at_hand: &hand::AtHand) -> Vec<Cloud> {
    if let Some(list) = config.and_then(|config| config.get("allowed_clouds")).and_then(Value::as_list) {
        return list.iter().filter_map(|name| Cloud::from_name(name.as_str()?)).collect();
    }
    let mut clouds: Vec<Cloud> = catalogue.clouds().filter(|cloud| !catalogue.offers(*cloud).is_empty()).collect();
    clouds.sort_by_key(|cloud| (FIRST.iter().position(|first| first == cloud).unwrap_or(FIRST.len()), *cloud));
    clouds.push(Cloud::Local);
    clouds.extend((!at_hand.pools.is_empty()).then_some(Cloud::Ssh));
    if !at_hand.contexts.all.is_empty() && !clouds.contains(&Cloud::Kubernetes) {
        clouds.push(Cloud::Kubernetes);
    }
    clouds
}
