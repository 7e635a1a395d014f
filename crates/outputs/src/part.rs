//! The parts of a job's output, in the order in which readers see them, and places in it.

use std::fmt;
use std::str::FromStr;

/// What the pods of a JobSet do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Setup,
    Run,
}

impl Stage {
    const ALL: [Self; 2] = [Self::Setup, Self::Run];

    /// As labels and folders name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Run => "run",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == text)
    }
}

/// A stage of an attempt of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// From 0.
    pub task: u32,
    /// From 1.
    pub attempt: u32,
    pub stage: Stage,
}

/// A place in a job's output: after so many bytes of a part. Written as `0.1.run.4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub part: Part,
    pub offset: u64,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Part { task, attempt, stage } = self.part;
        write!(f, "{task}.{attempt}.{}.{}", stage.as_str(), self.offset)
    }
}

/// A text that names no place.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct NoSpot;

impl FromStr for Spot {
    type Err = NoSpot;

    fn from_str(text: &str) -> Result<Self, NoSpot> {
        let read = || {
            let mut words = text.split('.');
            let (task, attempt) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let (stage, offset) = (Stage::parse(words.next()?)?, words.next()?.parse().ok()?);
            words.next().is_none().then_some(Self { part: Part { task, attempt, stage }, offset })
        };
        read().ok_or(NoSpot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let spot = Spot { part: Part { task: 0, attempt: 12, stage: Stage::Run }, offset: 4096 };
        assert_eq!(spot.to_string(), "0.12.run.4096");
        assert_eq!(spot.to_string().parse(), Ok(spot));
        for wrong in ["", "0.1.run", "0.1.test.3", "0.1.run.3.4", "0.1.run.-3", "a.1.run.3"] {
            assert_eq!(wrong.parse::<Spot>(), Err(NoSpot), "{wrong}");
        }
    }

    #[test]
    fn setup_precedes_run() {
        let part = |task, attempt, stage| Part { task, attempt, stage };
        let mut parts =
            [part(1, 1, Stage::Setup), part(0, 10, Stage::Run), part(0, 9, Stage::Run), part(0, 10, Stage::Setup)];
        parts.sort();
        let order =
            [part(0, 9, Stage::Run), part(0, 10, Stage::Setup), part(0, 10, Stage::Run), part(1, 1, Stage::Setup)];
        assert_eq!(parts, order);
    }
}
