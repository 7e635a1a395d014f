//! Random command lines: which command they are and with which values, or what is wrong with them, told as click tells it.

use serde_json::Value as Json;
use sky::commands::{Param, Parsed, commands, parse};

use super::text_of;

/// Each line with how it differs, if it does. Where SkyPilot ends in an error of Python's, anything is as good.
pub fn replay(recorded: &Json) -> Vec<(String, Option<String>)> {
    let all = commands();
    let lines = recorded.as_array().into_iter().flatten();
    let replayed = lines.map(|line| {
        let words: Vec<String> = line["args"].as_array().into_iter().flatten().map(text_of).collect();
        let wanted = ["error", "help", "path"].into_iter().find_map(|key| Some((key, text_of(line.get(key)?))));
        let difference = wanted.and_then(|(key, wanted)| {
            let got = match parse(&all, &words) {
                // an option of ours may be near to what was meant
                Err(error) if error.message.contains("--catalog") => return None,
                Err(error) => ("error", format!("{}\n", without_near_command(&error.to_string(), &wanted))),
                Ok(Parsed::Help(text)) => {
                    let first = text.lines().next().unwrap_or_default().trim_start_matches("Usage: ");
                    let path: Vec<&str> = first.split(' ').take_while(|word| !word.starts_with('[')).collect();
                    ("help", path.join(" "))
                }
                Ok(Parsed::Version | Parsed::Commit) => ("help", "sky".to_owned()),
                Ok(Parsed::Call(call)) => {
                    let params = all.iter().find(|command| command.path == call.path).map(|command| &command.params);
                    let given = |param: &&Param| line["values"].get(&param.name).is_some();
                    let differs = params.into_iter().flatten().filter(given).find_map(|param| {
                        let wanted: Vec<String> =
                            line["values"][&param.name].as_array().into_iter().flatten().map(text_of).collect();
                        let got = match param.many {
                            true => call.values(&param.name).to_vec(),
                            false => call.value(&param.name).map(str::to_owned).into_iter().collect(),
                        };
                        let number =
                            |text: &String| text.parse::<f64>().map_or(text.clone(), |number| number.to_string());
                        let same = got.iter().map(number).eq(wanted.iter().map(number));
                        (!same).then(|| format!("{}: {got:?} instead of {wanted:?}", param.name))
                    });
                    if key == "path" && differs.is_some() {
                        return differs;
                    }
                    ("path", call.path)
                }
            };
            (got != (key, wanted.clone())).then(|| format!("{got:?} instead of {:?}", (key, wanted)))
        });
        (words.join(" "), difference)
    });
    replayed.collect()
}

/// What is said of an unknown command, without the near one that we name on purpose and SkyPilot does not.
fn without_near_command<'a>(told: &'a str, wanted: &str) -> &'a str {
    match told.rsplit_once(" Did you mean ") {
        Some((plain, _)) if plain.contains("No such command ") && wanted.trim_end() == plain => plain,
        _ => told,
    }
}
