//! The variable `authorizer` of admission policies: expressions ask what the user of a request, or a service account, may do.
//!
//! Source of names, errors and costs: `k8s.io/apiserver/pkg/cel/library`, `authz.go` and `cost.go`.

use super::Cel;
use super::meter::spend;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError};
use std::fmt;
use std::sync::Arc;

/// What one `check` costs (upstream's number).
const CHECK_COST: u64 = 350_000;
/// The variable that stands for `authorizer.requestResource`, which is one name and no member.
pub(super) const REQUEST_RESOURCE: &str = "@requestResource";

/// What an expression asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Namespace and name of the service account that it is about; `None`: the user of the request.
    pub account: Option<(String, String)>,
    pub subject: Subject,
    pub verb: String,
}

/// What a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Path(String),
    Resource(Attributes),
}

/// A resource; what an expression leaves out is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub group: String,
    /// The plural name, without the subresource.
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// A field selector; empty for none.
    pub fields: String,
}

/// Answers expressions.
pub trait Authorizer: Send + Sync {
    /// What allows it, in the words of an access review; `None`: nothing does.
    fn check(&self, question: &Question) -> Option<String>;
}

/// A value of one of the library's types.
#[derive(Clone)]
struct Handle {
    authorizer: Arc<dyn Authorizer>,
    account: Option<(String, String)>,
    step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Authorizer,
    Path(String),
    Group(String),
    Resource(Attributes),
    Decision(Option<String>),
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.authorizer, &other.authorizer) && (&self.account, &self.step) == (&other.account, &other.step)
    }
}

impl Eq for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.step.fmt(f)
    }
}

impl Opaque for Handle {
    fn runtime_type_name(&self) -> &str {
        match self.step {
            Step::Authorizer => "kubernetes.authorization.Authorizer",
            Step::Path(_) => "kubernetes.authorization.PathCheck",
            Step::Group(_) => "kubernetes.authorization.GroupCheck",
            Step::Resource(_) => "kubernetes.authorization.ResourceCheck",
            Step::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

impl Handle {
    fn then(&self, step: Step) -> Cel {
        Cel::Opaque(Arc::new(Self { step, ..self.clone() }))
    }
}

/// The variables of an expression whose request is about `own`.
pub(super) fn variables(authorizer: &Arc<dyn Authorizer>, own: Attributes) -> [(&'static str, Cel); 2] {
    let start = Handle { authorizer: authorizer.clone(), account: None, step: Step::Authorizer };
    let own = start.then(Step::Resource(own));
    [("authorizer", Cel::Opaque(Arc::new(start))), (REQUEST_RESOURCE, own)]
}

type Receiver = This<Arc<dyn Opaque>>;
type Answer = Result<Cel, ExecutionError>;

/// Calls `f` with a value of the library.
fn with(value: &Receiver, f: impl FnOnce(&Handle) -> Answer) -> Answer {
    value.0.downcast_ref::<Handle>().map_or(Err(ExecutionError::NoSuchOverload), f)
}

fn text(text: impl Into<String>) -> Cel {
    Cel::String(Arc::new(text.into()))
}

fn account(from: &Handle, namespace: &str, name: &str) -> Answer {
    let refused =
        |what: &str| ExecutionError::function_error("serviceAccount", format!("Invalid service account {what}"));
    if !api::names::subdomain_faults(name, false).is_empty() {
        return Err(refused("name"));
    }
    if !api::names::label_faults(namespace, false).is_empty() {
        return Err(refused("namespace"));
    }
    let account = Some((namespace.to_owned(), name.to_owned()));
    Ok(Cel::Opaque(Arc::new(Handle { account, ..from.clone() })))
}

fn check(from: &Handle, verb: &str) -> Answer {
    let subject = match &from.step {
        Step::Path(path) => Subject::Path(path.clone()),
        Step::Resource(attributes) => Subject::Resource(attributes.clone()),
        Step::Authorizer | Step::Group(_) | Step::Decision(_) => return Err(ExecutionError::NoSuchOverload),
    };
    spend(CHECK_COST)?;
    let question = Question { account: from.account.clone(), subject, verb: verb.to_owned() };
    Ok(from.then(Step::Decision(from.authorizer.check(&question))))
}

/// A function that yields a value of the next type.
fn step(context: &mut Context<'_>, name: &'static str, next: fn(&Step, String) -> Option<Result<Step, &'static str>>) {
    context.add_function(name, move |this: Receiver, argument: Arc<String>| -> Answer {
        with(&this, |from| match next(&from.step, argument.to_string()) {
            Some(Ok(step)) => Ok(from.then(step)),
            Some(Err(why)) => Err(ExecutionError::function_error(name, why)),
            None => Err(ExecutionError::NoSuchOverload),
        })
    });
}

/// A function that changes one attribute of a resource.
fn attribute(context: &mut Context<'_>, name: &'static str, set: fn(&mut Attributes, String)) {
    context.add_function(name, move |this: Receiver, argument: Arc<String>| -> Answer {
        with(&this, |from| {
            let Step::Resource(attributes) = &from.step else { return Err(ExecutionError::NoSuchOverload) };
            let mut attributes = attributes.clone();
            set(&mut attributes, argument.to_string());
            Ok(from.then(Step::Resource(attributes)))
        })
    });
}

/// A function that reads a decision: what allows it, if anything does.
fn reading(context: &mut Context<'_>, name: &'static str, read: fn(Option<&str>) -> Cel) {
    context.add_function(name, move |this: Receiver| -> Answer {
        with(&this, |from| match &from.step {
            Step::Decision(allowed) => Ok(read(allowed.as_deref())),
            _ => Err(ExecutionError::NoSuchOverload),
        })
    });
}

pub(super) fn add_functions(context: &mut Context<'_>) {
    step(context, "path", |from, path| match from {
        Step::Authorizer if path.is_empty() => Some(Err("path must not be empty")),
        Step::Authorizer => Some(Ok(Step::Path(path))),
        _ => None,
    });
    step(context, "group", |from, group| matches!(from, Step::Authorizer).then(|| Ok(Step::Group(group))));
    step(context, "resource", |from, resource| match from {
        Step::Group(_) if resource.is_empty() => Some(Err("resource must not be empty")),
        Step::Group(group) => {
            let group = group.clone();
            Some(Ok(Step::Resource(Attributes { group, resource, ..Attributes::default() })))
        }
        _ => None,
    });
    attribute(context, "subresource", |attributes, value| attributes.subresource = value);
    attribute(context, "namespace", |attributes, value| attributes.namespace = value);
    attribute(context, "name", |attributes, value| attributes.name = value);
    attribute(context, "fieldSelector", |attributes, value| attributes.fields = value);
    // no right depends on labels here, nor does one in upstream's Node and RBAC modes
    attribute(context, "labelSelector", |_, _| {});
    context.add_function("serviceAccount", |this: Receiver, namespace: Arc<String>, name: Arc<String>| -> Answer {
        with(&this, |from| match from.step {
            Step::Authorizer => account(from, &namespace, &name),
            _ => Err(ExecutionError::NoSuchOverload),
        })
    });
    context.add_function("check", |this: Receiver, verb: Arc<String>| -> Answer {
        with(&this, |from| check(from, &verb))
    });
    reading(context, "allowed", |allowed| Cel::Bool(allowed.is_some()));
    reading(context, "reason", |allowed| text(allowed.unwrap_or_default()));
    // a question is always answered here: rights are read from memory
    reading(context, "errored", |_| Cel::Bool(false));
    reading(context, "error", |_| text(""));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::{Expression, Given};
    use serde_json::Value;

    struct Book;

    impl Authorizer for Book {
        fn check(&self, question: &Question) -> Option<String> {
            let who = question.account.as_ref().map_or("user".to_owned(), |(ns, name)| format!("{ns}/{name}"));
            let what = match &question.subject {
                Subject::Path(path) => path.clone(),
                Subject::Resource(a) => [&a.group, &a.resource, &a.subresource, &a.namespace, &a.name, &a.fields]
                    .map(String::as_str)
                    .join("|"),
            };
            (question.verb != "delete").then(|| format!("{who} {} {what}", question.verb))
        }
    }

    fn run(source: &str) -> Result<Value, String> {
        let expression = Expression::compile(source).map_err(|error| error.0)?;
        let own = Attributes { resource: "pods".to_owned(), name: "own".to_owned(), ..Attributes::default() };
        let rights: (Arc<dyn Authorizer>, Attributes) = (Arc::new(Book), own);
        let given = Given { rights: Some(&rights), ..Given::default() };
        expression.evaluate_policy(&given).0.map(|value| value.json()).map_err(|error| error.0)
    }

    #[test]
    fn questions_are_built_step_by_step() {
        for (source, expected) in [
            ("authorizer.path('/healthz').check('get').reason()", "user get /healthz"),
            (
                "authorizer.group('apps').resource('deployments').check('list').reason()",
                "user list apps|deployments||||",
            ),
            (
                "authorizer.group('').resource('pods').subresource('log').namespace('a').name('b').fieldSelector('c=d').labelSelector('e').check('get').reason()",
                "user get |pods|log|a|b|c=d",
            ),
            ("authorizer.requestResource.check('patch').reason()", "user patch |pods|||own|"),
            ("authorizer.requestResource.name('other').check('get').reason()", "user get |pods|||other|"),
            ("authorizer.serviceAccount('ns', 'sa').path('/x').check('get').reason()", "ns/sa get /x"),
            ("['a', 'b'].map(x, authorizer.path('/' + x).check('get').reason()).join()", "user get /auser get /b"),
            ("authorizer.requestResource.check('delete').reason()", ""),
        ] {
            assert_eq!(run(source), Ok(expected.into()), "{source}");
        }
        assert_eq!(run("authorizer.requestResource.check('delete').allowed()"), Ok(false.into()));
        assert_eq!(run("authorizer.requestResource.check('get').allowed() && true"), Ok(true.into()));
        assert_eq!(run("authorizer.requestResource.check('get').errored()"), Ok(false.into()));
    }

    #[test]
    fn what_is_wrong_has_upstreams_words() {
        for (source, expected) in [
            ("authorizer.path('').check('get').allowed()", "path must not be empty"),
            ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
            (
                "authorizer.serviceAccount('A', 'b').path('/').check('get').allowed()",
                "Invalid service account namespace",
            ),
            ("authorizer.serviceAccount('a', '').path('/').check('get').allowed()", "Invalid service account name"),
            ("authorizer.check('get').allowed()", "no such overload"),
        ] {
            assert_eq!(run(source), Err(expected.to_owned()), "{source}");
        }
    }

    #[test]
    fn questions_are_dear() {
        let three = "[1, 2, 3].all(x, authorizer.path('/' + string(x)).check('get').allowed())";
        assert_eq!(run(three), Err(crate::cel::meter::EXCEEDED.to_owned()));
    }
}
