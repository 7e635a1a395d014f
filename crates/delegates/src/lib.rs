//! Groups of the API that other parts of the process answer. Each is a delegate of the API server.
//!
//! | Group | Answered from |
//! |---|---|
//! | `metrics.trainyard.dev` | what the status server stored (`operator`) |
//! | `queue.trainyard.dev` | what the scheduler knows (`operator`); of managed jobs, the server's own objects |
//! | `files.trainyard.dev` | the store of files (`files`) |
//! | `offers.trainyard.dev` | what the launcher sees (`launcher`) |
//!
//! Each is a translation: the parts do not know the server, and the server does not know the parts. `evidence` and `outputs` bring
//! their own delegates.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

mod files;
mod history;
mod offers;
mod places;
mod tallies;

pub use files::PartsOfFiles;
pub use history::Histories;
pub use offers::OffersNow;
pub use places::Places;
pub use tallies::Tallies;
