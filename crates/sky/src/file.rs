//! A task file: one task, a pipeline of tasks that run one after another, or a group that runs together.

use placement::Catalogue;

use crate::error::TaskError;
use crate::schema::Reader;
use crate::task::{Given, Task, check_duration};
use crate::value::{Map, Value, quote, quote_all};
use crate::yaml::{self, Document, Duplicate};

/// What a file asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// The name of the whole.
    pub name: Option<String>,
    /// How its tasks run.
    pub kind: Kind,
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// Keys that stand twice in a mapping. The last of them counts; a command that launches the file refuses them.
    pub duplicates: Vec<Duplicate>,
}

/// How tasks run.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// One after another; one alone is a pipeline of one.
    Serial,
    /// All at once.
    Parallel(Group),
}

/// How a group ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The tasks whose end ends the group; all where none is named.
    pub primary_tasks: Option<Vec<Value>>,
    /// How long the others go on: a duration, or one for each name.
    pub termination_delay: Option<Value>,
    /// Whether its tasks must reach one another.
    pub inter_connection: Option<bool>,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// For what is no YAML and no task; with the place in the file.
    pub fn read(text: &str, given: &Given, reader: Reader, catalogue: &Catalogue) -> Result<Self, TaskError> {
        let mut documents = yaml::documents(text)?;
        if documents.is_empty() {
            // nothing but comments: a task that asks for a machine and runs nothing
            documents.push(Document { value: Some(Value::Map(Map::new())), ..Document::default() });
        }
        let duplicates = documents.iter().flat_map(|document| document.duplicates.clone()).collect();
        let file = if is_group(&documents)? {
            group(&documents, given, reader, catalogue)
        } else {
            pipeline(&documents, given, reader, catalogue)
        };
        file.map(|file| Self { duplicates, ..file })
    }

    /// `task`, `pipeline` or `group`.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Parallel(_) => "group",
            Kind::Serial if self.tasks.len() > 1 => "pipeline",
            Kind::Serial => "task",
        }
    }
}

/// The fields of a document; nothing for an empty one.
fn fields(document: &Document) -> Result<Option<&Map>, TaskError> {
    match &document.value {
        None => Ok(None),
        Some(Value::Map(map)) => Ok(Some(map)),
        Some(other) => {
            let error = TaskError::shape(format!(
                "A task is a mapping of fields such as `run` and `resources`, not {}.",
                other.quoted()
            ));
            Err(placed(error.at("$"), document))
        }
    }
}

/// An error with its place in the file.
fn placed(mut error: TaskError, document: &Document) -> TaskError {
    let mut path = error.path.clone();
    while let (None, Some(at)) = (error.place, &path) {
        error.place = document.places.get(at).copied();
        path = at.rfind(['.', '[']).map(|end| at.get(..end).unwrap_or("$").to_owned());
    }
    error
}

/// A file of several documents is a group if its first one says `execution: parallel`.
pub(crate) fn is_group(documents: &[Document]) -> Result<bool, TaskError> {
    let [first, _, ..] = documents else { return Ok(false) };
    Ok(fields(first)?.is_some_and(|header| header.get("execution").and_then(Value::as_str) == Some("parallel")))
}

fn pipeline(documents: &[Document], given: &Given, reader: Reader, catalogue: &Catalogue) -> Result<File, TaskError> {
    let first = documents.first().map(fields).transpose()?.flatten();
    let is_header = first.is_some_and(|fields| {
        let keys: Vec<Option<&str>> = fields.keys().map(Value::as_str).collect();
        matches!(
            keys.as_slice(),
            [Some("name")] | [Some("name"), Some("execution")] | [Some("execution"), Some("name")]
        )
    });
    let name = first.filter(|_| is_header || documents.len() == 1).and_then(|fields| fields.given("name"));
    if is_header
        && let Some(mode) =
            first.and_then(|fields| fields.given("execution")).filter(|mode| mode.as_str() != Some("serial"))
    {
        return Err(TaskError::value(format!(
            "Invalid execution mode for pipeline: {}. Pipelines must use execution: serial (or omit it). Use execution: parallel for job groups.",
            mode.quoted()
        )));
    }
    let (mut tasks, mut read) = (Vec::new(), Vec::new());
    for document in documents.iter().skip(usize::from(is_header)) {
        if let Some(fields) = fields(document)? {
            tasks.push(
                Task::read(Value::Map(fields.clone()), given, reader, catalogue)
                    .map_err(|error| placed(error, document))?,
            );
            read.push(document);
        }
    }
    if !given.on_command_line {
        check_instance_types(&tasks, &read, catalogue)?;
    }
    if is_header && documents.len() == 1 {
        let named = Map::from_iter([("name", name.cloned().unwrap_or(Value::Null))]);
        tasks.push(Task::read(Value::Map(named), given, reader, catalogue)?);
    }
    Ok(File { name: name.map(Value::text), kind: Kind::Serial, tasks, duplicates: Vec::new() })
}

/// Price lists are asked once all tasks are read: what is wrong with any of them is told first.
fn check_instance_types(tasks: &[Task], read: &[&Document], catalogue: &Catalogue) -> Result<(), TaskError> {
    for (task, document) in tasks.iter().zip(read) {
        for one in &task.resources.list {
            let checked = one.check_instance_type(catalogue);
            checked.map_err(|error| placed(error.at("$.resources.instance_type"), document))?;
        }
    }
    Ok(())
}

fn group(documents: &[Document], given: &Given, reader: Reader, catalogue: &Catalogue) -> Result<File, TaskError> {
    let Some((header, jobs)) = documents.split_first() else {
        return Err(TaskError::value("Job Group header cannot be empty."));
    };
    let fields_of_header = fields(header)?.cloned().unwrap_or_default();
    let Some(name) = fields_of_header.get("name") else {
        return Err(placed(TaskError::value("Job Group header missing required fields: {'name'}").at("$"), header));
    };
    let word = |text: &str| text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
    if !name.as_str().is_some_and(|text| !text.is_empty() && word(text)) {
        let error = TaskError::value(format!(
            "Invalid job group name: {}. Name must contain only alphanumeric characters, hyphens, and underscores.",
            name.quoted()
        ));
        return Err(placed(error.at("$.name"), header));
    }
    let (mut tasks, mut read) = (Vec::new(), Vec::new());
    let mut names: Vec<String> = Vec::new();
    for (at, document) in jobs.iter().enumerate() {
        let Some(fields) = fields(document)? else { continue };
        let refuse = |message: String| Err(placed(TaskError::value(message).at("$.name"), document));
        let job = match fields.given("name") {
            None => return refuse(format!("Job {} in Job Group must have a \"name\" field.", at + 1)),
            Some(Value::Str(job)) => job.clone(),
            Some(other) => {
                return Err(placed(TaskError::wrong_type("A job's name", other, "a text").at("$.name"), document));
            }
        };
        if !word(&job) {
            return refuse(format!(
                "Invalid job name: {}. Name must contain only alphanumeric characters, hyphens, and underscores.",
                quote(&job)
            ));
        }
        if names.contains(&job) {
            return refuse(format!("Duplicate job name in Job Group: {job}"));
        }
        names.push(job);
        tasks.push(
            Task::read(Value::Map(fields.clone()), given, reader, catalogue)
                .map_err(|error| placed(error, document))?,
        );
        read.push(document);
    }
    names.sort();
    let group = Group {
        primary_tasks: primary_tasks(fields_of_header.given("primary_tasks"), &names)
            .map_err(|error| placed(error.at("$.primary_tasks"), header))?,
        termination_delay: termination_delay(fields_of_header.given("termination_delay"), &names)
            .map_err(|error| placed(error.at("$.termination_delay"), header))?,
        inter_connection: inter_connection(fields_of_header.given("inter_connection"))
            .map_err(|error| placed(error.at("$.inter_connection"), header))?,
    };
    if !given.on_command_line {
        check_instance_types(&tasks, &read, catalogue)?;
    }
    Ok(File { name: Some(name.text()), kind: Kind::Parallel(group), tasks, duplicates: Vec::new() })
}

fn primary_tasks(field: Option<&Value>, names: &[String]) -> Result<Option<Vec<Value>>, TaskError> {
    let list = match field {
        None => return Ok(None),
        Some(Value::List(list)) => list,
        Some(other) => {
            return Err(TaskError::value(format!(
                "primary_tasks must be a list of job names, got {}",
                other.type_name()
            )));
        }
    };
    for job in list {
        let Some(name) = job.as_str() else {
            return Err(TaskError::value(format!("primary_tasks entries must be strings, got {}", job.type_name())));
        };
        if !names.iter().any(|known| known == name) {
            return Err(TaskError::value(format!(
                "primary_tasks references unknown job: {name}. Available jobs: {}",
                quote_all(names)
            )));
        }
    }
    Ok(Some(list.clone()).filter(|list| !list.is_empty()))
}

fn termination_delay(field: Option<&Value>, names: &[String]) -> Result<Option<Value>, TaskError> {
    match field {
        None => Ok(None),
        Some(one @ (Value::Str(_) | Value::Int(_) | Value::Bool(_))) => {
            check_duration(&one.text(), "termination_delay")?;
            Ok(Some(Value::Str(one.text())))
        }
        Some(Value::Map(each)) => {
            for (key, value) in each.iter() {
                let (Value::Str(name), Value::Str(_) | Value::Int(_) | Value::Bool(_)) = (key, value) else {
                    return Err(TaskError::value(format!(
                        "termination_delay dict must have string keys and string/int values, got {}: {}",
                        key.quoted(),
                        value.quoted()
                    )));
                };
                if name != "default" && !names.contains(name) {
                    return Err(TaskError::value(format!(
                        "termination_delay references unknown job: {name}. Available jobs: {} (or \"default\")",
                        quote_all(names)
                    )));
                }
                check_duration(&value.text(), &format!("termination_delay[{}]", key.quoted()))?;
            }
            Ok(Some(Value::Map(each.iter().map(|(key, value)| (key.clone(), value.text())).collect())))
        }
        Some(other) => Err(TaskError::value(format!(
            "termination_delay must be a string, int, or dict, got {}",
            other.type_name()
        ))),
    }
}

fn inter_connection(field: Option<&Value>) -> Result<Option<bool>, TaskError> {
    match field {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(other) => Err(TaskError::value(format!(
            "inter_connection must be a boolean, got {}: {}",
            other.type_name(),
            other.quoted()
        ))),
    }
}
