//! How a machine is made on a host of its pool.

use super::fit::unsuitable;
use super::machines::NAME;
use super::reach::{QUICK, Spot, Ssh};
use super::record::{Place, Record};
use crate::fault::Fault;
use crate::host::first;
use crate::kept::{ENDING, Keeper, Line, Machine, locked};
use crate::provider::not_ours;
use api::sky::Place as Wanted;
use managed::provider::{Failure, Fate, Request, Seen};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// KiB of disk that must be left after the program is stored.
const SPARE_KIB: u64 = 64 << 10;
/// How long to wait for a host that may have been taken, before another one is taken.
const PATIENCE: Duration = Duration::from_secs(60);

impl Keeper<Ssh> {
    /// Makes the machine on the first host that can have it.
    pub async fn make(self: &Arc<Self>, machine: &Arc<Machine<Ssh>>, request: Request) -> Result<Seen, Failure> {
        let mut record = self.records.read(&request.token)?.unwrap_or_else(|| Record::of(&request));
        let Wanted::Ssh { pool, host: wanted } = request.candidate.place() else {
            return Err(not_ours(NAME, &request));
        };
        let mut hosts: Vec<Place> = self.reach.places(pool)?.into_iter().map(|(place, _)| place).collect();
        hosts.retain(|place| wanted.is_none_or(|wanted| wanted == place.name));
        // a host that may be taken already comes first
        hosts.sort_by_key(|place| !record.places.iter().any(|one| one.is(place)));
        let (mut told, mut may_come) = (Vec::new(), false);
        for place in hosts {
            let begun = record.places.iter().any(|one| one.is(&place));
            let fault = match self.make_on(machine, &mut record, &place, &request).await? {
                Ok(seen) => return Ok(seen),
                Err(fault) => fault,
            };
            match &fault {
                Fault::Broken(_) | Fault::Stuck(_) => return Err(fault.failure(&place.id())),
                Fault::Unreachable(_) if begun => {
                    let since = *locked(&machine.memory.silent).get_or_insert_with(Instant::now);
                    if since.elapsed() < PATIENCE {
                        return Err(fault.failure(&place.id()));
                    }
                    may_come = true;
                }
                Fault::Unreachable(_) | Fault::NoRoom(_) => may_come = true,
                Fault::Refused(_) | Fault::Unfit(_) | Fault::Absent => {}
            }
            told.push(format!("{}: {}", place.host(), fault.what()));
        }
        let fate = if may_come { Fate::NextCandidate } else { Fate::GiveUp };
        let what = if told.is_empty() {
            format!("pool {pool} has no host {:?}", wanted.unwrap_or_default())
        } else {
            told.join("; ")
        };
        Err(Failure::new(fate, what))
    }

    /// The outer error concerns this side.
    async fn make_on(
        self: &Arc<Self>,
        machine: &Arc<Machine<Ssh>>,
        record: &mut Record,
        place: &Place,
        request: &Request,
    ) -> Result<Result<Seen, Fault>, Failure> {
        let session = match self.reach.open(place).await {
            Ok(session) => session,
            Err(fault) => return Ok(Err(fault)),
        };
        *locked(&machine.memory.silent) = None;
        let line = session.line();
        let said = match line.call("look", &[("token", &record.who.token)], None, QUICK).await {
            Ok(said) => said,
            Err(fault) => return Ok(Err(fault)),
        };
        let ours = first(&said, "holder") == record.who.token;
        if !ours {
            let need = match self.program.digest().await {
                Ok((_, bytes)) => (bytes / 1024).saturating_mul(2).saturating_add(SPARE_KIB),
                Err(fault) => return Ok(Err(fault)),
            };
            if let Some(fault) = unsuitable(&said, &request.candidate, need) {
                return Ok(Err(fault));
            }
        }
        record.forget(place);
        record.places.push(place.clone());
        record.current = Some(place.clone());
        self.records.write(record)?;
        let claim = json!({"owner": self.reach.settings.owner, "node": record.who.node, "pool": place.pool, "host": place.name})
            .to_string();
        let claimed = line.call("claim", &[("token", &record.who.token), ("record", &claim)], None, QUICK).await;
        let fault = match claimed {
            Ok(_) => match self.bring(machine, record, Spot { session, said: None }).await {
                Ok(seen) => return Ok(Ok(seen)),
                Err(fault @ (Fault::Broken(_) | Fault::Stuck(_))) => return Ok(Err(fault)),
                Err(fault) => match line.call("end", &[("token", &record.who.token)], None, ENDING).await {
                    Ok(_) | Err(Fault::Absent) => fault,
                    Err(left) => return Ok(Err(Fault::Stuck(format!("{}; and then: {}", fault.what(), left.what())))),
                },
            },
            Err(fault @ Fault::NoRoom(_)) => fault,
            Err(fault) => return Ok(Err(fault)),
        };
        record.forget(place);
        self.records.write(record)?;
        Ok(Err(fault))
    }
}
