//! Which values a trial gets: the algorithms behind one door.

use super::chance::Chance;
use super::search::{Algorithm, Search};
use super::space::{Point, Space};
use super::tpe::Observation;
use super::{grid, tpe};
use api::trainer::Assignment;

/// What is known of a trial when another one is to be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    pub parameters: Vec<Assignment>,
    /// The objective; `None` if the trial failed or still runs.
    pub value: Option<f64>,
}

/// The values for the trial of this index. The same history gives the same values.
///
/// An algorithm that has no use for the history ignores it: then a trial's values depend on its index alone.
pub fn suggest(search: &Search, index: usize, history: &[Known]) -> Vec<Assignment> {
    let spaces: Vec<&Space> = search.parameters.iter().map(|parameter| &parameter.space).collect();
    let point = match search.algorithm {
        Algorithm::Grid => grid::point(&spaces, index),
        Algorithm::Random { seed } => anywhere(&spaces, &mut Chance::new(seed, index)),
        Algorithm::Tpe { seed } => {
            let mut chance = Chance::new(seed, index);
            let history: Vec<Observation> = history.iter().filter_map(|known| observation(search, known)).collect();
            tpe::point(&spaces, &history, &mut chance).unwrap_or_else(|| anywhere(&spaces, &mut chance))
        }
    };
    let values = search.parameters.iter().zip(point);
    values
        .map(|(parameter, point)| Assignment { name: parameter.name.clone(), value: parameter.space.value(point) })
        .collect()
}

/// A point that is as likely as any other.
fn anywhere(spaces: &[&Space], chance: &mut Chance) -> Vec<Point> {
    let point = spaces.iter().map(|space| match space {
        Space::Number(_) => Point::At(chance.unit()),
        Space::Choice(words) => Point::Choice(chance.below(words.len())),
    });
    point.collect()
}

/// A trial on the search's own scale; `None` if its values are not of this search.
fn observation(search: &Search, known: &Known) -> Option<Observation> {
    let point = search.parameters.iter().map(|parameter| {
        let given = known.parameters.iter().find(|given| given.name == parameter.name)?;
        parameter.space.point(&given.value)
    });
    Some(Observation { point: point.collect::<Option<_>>()?, loss: known.value.map(|value| search.loss(value)) })
}
