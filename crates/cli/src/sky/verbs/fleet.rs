//! `sky serve` and `sky jobs pool`: services, pools, and their replicas.

mod down;
mod logs;
mod rows;
mod status;
mod up;

pub(super) use down::down;
pub(super) use logs::logs;
pub(super) use status::{section, status};
pub(super) use up::{apply, update};

use super::End;
use crate::sky::clusters::Sky;
use crate::sky::submit::Trouble;
use ::clusters::Fleet;
use ::sky::commands::Call;
use ::sky::console::ServedKind;
use managed::fleet::FleetKind;

/// What a command is about.
fn kind(call: &Call) -> FleetKind {
    if call.path.starts_with("sky jobs pool") { FleetKind::Pool } else { FleetKind::Service }
}

/// `service`, `pool`.
fn noun(kind: FleetKind) -> &'static str {
    match kind {
        FleetKind::Service => "service",
        FleetKind::Pool => "pool",
    }
}

/// `replica`, `worker`.
fn member(kind: FleetKind) -> &'static str {
    match kind {
        FleetKind::Service => "replica",
        FleetKind::Pool => "worker",
    }
}

fn capital(word: &str) -> String {
    let mut word = word.to_owned();
    word.get_mut(..1).map(str::make_ascii_uppercase);
    word
}

fn served(kind: FleetKind) -> ServedKind {
    match kind {
        FleetKind::Service => ServedKind::Services,
        FleetKind::Pool => ServedKind::Pools,
    }
}

/// `sky serve`, `sky jobs pool`.
fn group(kind: FleetKind) -> &'static str {
    match kind {
        FleetKind::Service => "sky serve",
        FleetKind::Pool => "sky jobs pool",
    }
}

/// That there is none of this name, and the name that was probably meant.
async fn missing(sky: &Sky, kind: FleetKind, shown: &str) -> Trouble {
    let all = sky.all_fleets(kind).await.unwrap_or_default(); // the sentence is true without a guess
    let near = api::near::near(shown, all.iter().map(|one| one.spec.name.as_str()));
    let near = near.map(|name| format!(" Did you mean {name}?")).unwrap_or_default();
    let word = capital(noun(kind));
    Trouble::Said(format!("ValueError: {word} '{shown}' does not exist.{near} `{} status` lists all.", group(kind)))
}

pub(super) async fn found(sky: &Sky, kind: FleetKind, shown: &str) -> Result<Fleet, End> {
    match sky.fleet(kind, shown).await? {
        Some(fleet) => Ok(fleet),
        None => Err(missing(sky, kind, shown).await.into()),
    }
}
