//! Machines that are there: how they are looked at, stopped, started and ended.

use super::record::{Place, Record};
use super::work::{ENDING, Inner, Machine, QUICK, Way, absent, locked, seen_of};
use crate::fault::Fault;
use crate::host::first;
use managed::provider::{Ended, Failure, Fate, Found, Handle, Seen, State};
use std::sync::Arc;

/// A machine without a record, or without a host in it: a host is forgotten only after it has said that nothing is left.
fn over() -> Ended {
    Ended::because("none of its hosts has anything of it any more, as they have said themselves")
}

impl Inner {
    /// The machine as it is; one that is to run has its agent and its connection then.
    pub async fn up(self: &Arc<Self>, token: &str) -> Result<Found, Failure> {
        let machine = self.machine(token);
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(token)? else { return Ok(Found::Ended(over())) };
        let Some(place) = record.current.clone() else { return Ok(Found::Ended(over())) };
        let failed = |fault: Fault| fault.failure(&place.id());
        let way = self.way(&machine, &place).await.map_err(failed)?;
        let line = way.line();
        let said = match self.find(&line, &record).await.map_err(failed)? {
            Ok(said) => said,
            Err(ended) => return Ok(Found::Ended(ended)),
        };
        match (first(&said, "goal"), way) {
            ("gone", _) => self.end(&machine, &mut record, &place).await,
            ("stopped", _) => Ok(Found::There(self.seen(&mut record, &place, &said, State::Stopped))),
            (_, Way::Own(session)) => {
                self.bring(&machine, &mut record, *session, Some(said)).await.map(Found::There).map_err(failed)
            }
            // one that ended by itself is started again
            (_, Way::Kept(line)) => {
                let port = locked(&machine.link).as_ref().map(|link| link.port);
                if let Some(port) = port {
                    self.start_agent(&line, &record, port).await.map_err(failed)?;
                }
                Ok(Found::There(self.seen(&mut record, &place, &said, State::Running)))
            }
        }
    }

    /// Ends what is on one host.
    pub async fn end(&self, machine: &Machine, record: &mut Record, place: &Place) -> Result<Found, Failure> {
        let left = |fault: Fault| {
            let what = format!("{}; what is on it cannot be removed", fault.what());
            Failure::new(Fate::Retry, format!("{}: {what}", place.id()))
        };
        let way = self.way(machine, place).await.map_err(left)?;
        let line = way.line();
        let said = match self.look(&line, record).await {
            Ok(said) => Some(said),
            Err(Fault::Absent) => None,
            Err(fault) => return Err(left(fault)),
        };
        if let Some(said) = &said
            && first(said, "sha256").is_empty()
        {
            // without the program nothing that it has started can be ended
            match self.upload(&line, record, said).await {
                Ok(()) | Err(Fault::Absent | Fault::NoRoom(_) | Fault::Unfit(_)) => {}
                Err(fault) => return Err(left(fault)),
            }
        }
        match line.call("end", &[("token", &record.token)], None, ENDING).await {
            Ok(_) | Err(Fault::Absent) => {}
            Err(fault) => return Err(left(fault)),
        }
        if locked(&machine.link).as_ref().is_some_and(|link| link.line.place.is(place)) {
            *locked(&machine.link) = None;
        }
        record.forget(place);
        self.records.write(record)?;
        Ok(Found::ended(format!(
            "host {} was told that the machine is to go, and nothing of it is left there",
            place.id()
        )))
    }

    pub async fn delete(&self, handle: &Handle) -> Result<Found, Failure> {
        let machine = self.machine(&handle.token);
        machine.making.end();
        machine.coming_up.end();
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(&handle.token)? else { return Ok(Found::Ended(over())) };
        let current = record.current.as_ref().map(Place::id);
        // one that is not the noted one is ended alone
        let alone = handle.id.as_ref().filter(|id| current.as_ref().is_some_and(|current| current != *id));
        for place in record.places.clone() {
            if alone.is_none_or(|id| *id == place.id()) {
                self.end(&machine, &mut record, &place).await?;
            }
        }
        if record.places.is_empty() {
            locked(&self.machines).remove(&handle.token);
        }
        Ok(Found::Ended(over()))
    }

    pub async fn stop(&self, Handle { token, generation, .. }: &Handle) -> Result<Found, Failure> {
        let machine = self.machine(token);
        machine.coming_up.end();
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(token)? else { return Ok(Found::Ended(over())) };
        let Some(place) = record.current.clone() else { return Ok(Found::Ended(over())) };
        let failed = |fault: Fault| fault.failure(&place.id());
        let way = self.way(&machine, &place).await.map_err(failed)?;
        let line = way.line();
        match line.call("stop", &[("token", token), ("generation", &generation.to_string())], None, ENDING).await {
            Ok(_) => {}
            Err(Fault::Absent) => return Ok(Found::Ended(absent(&place))),
            Err(fault) => return Err(failed(fault)),
        }
        let said = self.look(&line, &record).await.map_err(failed)?;
        *locked(&machine.link) = None;
        Ok(Found::There(self.seen(&mut record, &place, &said, State::Stopped)))
    }

    /// Notes on the host that the machine is to run; why it cannot, where it has ended.
    pub async fn aim(&self, Handle { token, generation, .. }: &Handle) -> Result<Option<Ended>, Failure> {
        let machine = self.machine(token);
        machine.coming_up.end();
        let _turn = machine.turn.lock().await;
        let Some(place) = self.records.read(token)?.and_then(|record| record.current) else { return Ok(Some(over())) };
        let failed = |fault: Fault| fault.failure(&place.id());
        let way = self.way(&machine, &place).await.map_err(failed)?;
        let generation = generation.to_string();
        let variables = [("token", token.as_str()), ("goal", ""), ("generation", generation.as_str())];
        match way.line().call("aim", &variables, None, QUICK).await {
            Ok(_) => Ok(None),
            Err(Fault::Absent) => Ok(Some(absent(&place))),
            Err(fault) => Err(failed(fault)),
        }
    }

    /// The claims of a record's hosts that can be reached; places that have none are forgotten.
    pub async fn owned(&self, record: Record) -> Vec<Seen> {
        let machine = self.machine(&record.token);
        // the task that works on it looks by itself
        let Ok(_turn) = machine.turn.try_lock() else {
            return record.current.iter().map(|place| seen_of(&record, place, State::Starting)).collect();
        };
        let Ok(Some(mut record)) = self.records.read(&record.token) else { return Vec::new() };
        let mut found = Vec::new();
        for place in record.places.clone() {
            let Ok(way) = self.way(&machine, &place).await else { continue };
            match self.look(&way.line(), &record).await {
                Ok(said) => {
                    let state = match first(&said, "goal") {
                        "gone" => State::Ending,
                        "stopped" => State::Stopped,
                        _ => State::Running,
                    };
                    found.push(seen_of(&record, &place, state));
                }
                Err(Fault::Absent) if record.current.as_ref().is_none_or(|current| !current.is(&place)) => {
                    record.forget(&place);
                    let _ = self.records.write(&record); // it is forgotten another time
                }
                Err(_) => {}
            }
        }
        found
    }
}
