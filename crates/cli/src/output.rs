//! Prints values as JSON, YAML or tables. All commands print data through this module.

use api::foreign::{visible_json, visible_line};
use comfy_table::{ContentArrangement, Table, presets};
use grammar::Format;
use serde_json::Value;

/// Prints a value as JSON or YAML.
pub(crate) fn print(value: &Value, format: Format) {
    match format {
        Format::Yaml => print!("{}", yaml(value)),
        Format::Json | Format::Table | Format::Wide | Format::Name => {
            let text = serde_json::to_string_pretty(value).expect("values are JSON");
            println!("{}", visible_json(&text));
        }
    }
}

/// Prints an object that was created: its name, or all of it.
pub(crate) fn created(object: &Value, format: Format) {
    match format {
        Format::Json | Format::Yaml => print(object, format),
        Format::Table | Format::Wide | Format::Name => println!("{}", api::object::meta(object, "name")),
    }
}

/// A value as YAML.
pub(crate) fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).expect("JSON values have a YAML form")
}

/// Prints rows under a header, aligned as kubectl does.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) {
    table_lines(header, rows).iter().for_each(|line| println!("{line}"));
}

/// Rows under a header, as lines.
pub(crate) fn table_lines(header: &[&str], rows: Vec<Vec<String>>) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    // cells hold what others wrote: names, messages, labels
    table.add_rows(rows.iter().map(|row| row.iter().map(|cell| visible_line(cell)).collect::<Vec<_>>()));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Whether to use colours and redraw lines on this stream.
pub(crate) fn is_fancy(stream: &impl std::io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
