//! The dashboard: what runs, what waits and why, in a browser.
//!
//! It is a client of an API server: it reads and writes with the token of the user who is signed in. The table of all jobs is the one
//! exception. It comes from an index that holds all jobs ([`index`]), and a user gets the rows that they may list ([`rights`]). What pages
//! show are values of `view`, `facts` and `diagnose`, which the command line prints, too.
//!
//! | Module | What it does |
//! |---|---|
//! | `guard` | names of this server, origins, headers that bind a browser |
//! | `sign_in`, `sessions`, `kept` | codes, tokens, cookies and their second half; sessions that outlive a restart |
//! | `index`, `row`, `query` | all jobs as rows; filters, order, pages |
//! | `jobs` | the table, live |
//! | `reasons` | why the jobs of a page wait, in a sentence each |
//! | `job`, `logs`, `series` | a job's page, its log, the curves of what it reported |
//! | `whole_log` | a search in all lines of a log, and its download |
//! | `sheets`, `sheet`, `scope` | all other pages, as values that `web/` draws; the objects that they read |
//! | `submit` | a form and its YAML, checked by the server's dry run |
//! | `actions` | suspend, resume, delete |
//! | `assets` | the pages themselves, a part of the binary |

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

mod actions;
mod assets;
mod guard;
mod index;
mod job;
mod jobs;
mod kept;
mod logs;
mod problem;
mod query;
mod reasons;
mod rights;
mod row;
mod scope;
mod series;
mod server;
mod sessions;
mod sheet;
mod sheets;
mod sign_in;
mod submit;
mod whole_log;

pub use guard::HostNames;
pub use index::Index;
pub use server::{Dashboard, Own, Settings};
pub use sessions::BearerToken;
