//! The local record of each machine: the hosts that may have something of it. It is written before a host is touched, and removed when all
//! of these hosts have confirmed that nothing is left. So a machine without a record was never begun.

use crate::kept::{Kept, Who};
use managed::provider::{Request, Seen, State};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A host of a pool; never its password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub pool: String,
    /// An address, or a name of the OpenSSH configuration.
    pub name: String,
    pub user: Option<String>,
    pub identity_file: Option<PathBuf>,
}

impl Place {
    /// The provider's name for the machine there.
    pub fn id(&self) -> String {
        format!("{}/{}", self.pool, self.host())
    }

    /// ssh's name for the host.
    pub fn host(&self) -> String {
        self.user.as_ref().map_or_else(|| self.name.clone(), |user| format!("{user}@{}", self.name))
    }

    /// Whether it is the same host, even if it is reached differently now.
    pub fn is(&self, other: &Self) -> bool {
        (&self.name, &self.user) == (&other.name, &other.user)
    }
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    #[serde(flatten)]
    pub who: Who,
    /// The hosts that may have something of it.
    pub places: Vec<Place>,
    /// The host where it is, or is being made.
    pub current: Option<Place>,
}

impl Record {
    pub fn of(request: &Request) -> Self {
        Self { who: Who::of(request), places: Vec::new(), current: None }
    }

    /// The machine at one of its places.
    pub fn seen(&self, place: &Place, state: State) -> Seen {
        self.who.seen(place.id(), state)
    }

    pub fn forget(&mut self, place: &Place) {
        self.places.retain(|one| !one.is(place));
        if self.current.as_ref().is_some_and(|one| one.is(place)) {
            self.current = None;
        }
    }
}

impl Kept for Record {
    fn who(&self) -> &Who {
        &self.who
    }

    fn who_mut(&mut self) -> &mut Who {
        &mut self.who
    }

    fn is_over(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::Records;
    use std::collections::BTreeMap;

    #[test]
    fn a_record_lives_as_long_as_it_has_places() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().join("ssh"));
        assert_eq!(records.all().unwrap(), []);
        records.create_folder().unwrap();
        let place =
            |pool: &str| Place { pool: pool.into(), name: "h".into(), user: Some("u".into()), identity_file: None };
        let who = Who {
            token: "t-1".into(),
            node: "n".into(),
            labels: BTreeMap::new(),
            taints: BTreeMap::new(),
            address: String::new(),
            home: String::new(),
        };
        let mut record = Record { who, places: vec![place("p")], current: Some(place("p")) };
        assert_eq!(place("p").id(), "p/u@h");
        records.write(&record).unwrap();
        assert_eq!((records.read("t-1").unwrap(), records.all().unwrap().len()), (Some(record.clone()), 1));
        // the format of older versions
        let text = r#"{"token":"t-1","node":"n","labels":{},"taints":{},"places":[],"current":null,"home":"/h"}"#;
        assert_eq!(serde_json::from_str::<Record>(text).unwrap().who.home, "/h");
        record.forget(&place("another pool now"));
        records.write(&record).unwrap();
        records.write(&record).unwrap();
        assert_eq!((records.read("t-1").unwrap(), record.current), (None, None));
    }
}
