//! How commands print.

use clap::{Args, ValueEnum};

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Args, Debug, Clone, Copy, Default)]
pub struct Output {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}
