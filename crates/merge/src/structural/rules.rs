//! The CEL rules of a schema: whether they are stated well, compile, and are cheap enough.

use super::*;
use crate::cel::Scope;

impl Walk {
    /// What a rule says of itself, before it is compiled.
    pub(super) fn stated_rules(&mut self, node: &Node, path: &Path) {
        for (i, rule) in list(node, "x-kubernetes-validations").iter().enumerate() {
            let Value::Object(rule) = rule else { continue };
            let at = path.child("x-kubernetes-validations").index(i);
            let broken = |text: &str| text.contains(['\n', '\r']);
            let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
            if source.is_empty() {
                self.errors.push(Error::required(&at.child("rule"), "rule is not specified"));
            } else if !message.is_empty() && message.trim().is_empty() {
                self.errors.push(Error::invalid(&at.child("message"), message, "must be non-empty if specified"));
            } else if broken(message.trim()) {
                self.errors.push(Error::invalid(&at.child("message"), message, "must not contain line breaks"));
            } else if broken(source) && message.trim().is_empty() {
                let why = "message must be specified if rule contains line breaks";
                self.errors.push(Error::required(&at.child("message"), why));
            }
            let expression = text(rule, "messageExpression");
            if !expression.is_empty() && expression.trim().is_empty() {
                let why = "messageExpression must be non-empty if specified";
                self.errors.push(Error::required(&at.child("messageExpression"), why));
            }
            if let Some(reason) = rule.get("reason").and_then(Value::as_str)
                && !REASONS.contains(&reason)
            {
                self.errors.push(Error::not_supported(&at.child("reason"), reason, &REASONS));
            }
            let field = text(rule, "fieldPath");
            if field.is_empty() {
                continue;
            }
            let here = at.child("fieldPath");
            if field.trim().is_empty() {
                self.errors.push(Error::invalid(&here, field, "must be non-empty if specified"));
            }
            if broken(field) {
                self.errors.push(Error::invalid(&here, field, "must not contain line breaks"));
            }
            let schema = Schema::node_from_openapi(&without_odd_types(&Value::Object(node.clone())));
            if is_readable(node) && schema.is_ok_and(|schema| field_path(field, &schema).is_none()) {
                self.errors.push(Error::invalid(&here, field, "must be a valid path"));
            }
        }
    }

    /// Notes what an expression costs at most.
    fn cost(&mut self, what: &str, cost: u64, at: Path) {
        if cost > COST_MAX {
            self.rule_errors.push(Error::forbidden(&at, too_expensive(what, cost, COST_MAX)));
        }
        self.costs.push((at, cost));
    }

    fn message(&mut self, members: &Node, rule: &Value, scope: Scope<'_>, at: &Path) {
        let message = text(members, "messageExpression");
        if message.is_empty() {
            return;
        }
        match crate::cel::check_message(message, scope) {
            Ok(accepted) => self.cost("estimated messageExpression cost", accepted.cost, at.clone()),
            Err(why) => self.rule_errors.push(Error::invalid(at, rule.clone(), why.to_string())),
        }
    }

    pub(super) fn compiled_rules(&mut self, node: &Node, path: &Path, root: bool, place: &Place) {
        let rules = list(node, "x-kubernetes-validations");
        if rules.is_empty() {
            return;
        }
        let json = Value::Object(node.clone());
        let read = if root { Schema::from_openapi(&json) } else { Schema::node_from_openapi(&json) };
        let Ok(schema) = read else { return };
        if place.untyped || !is_typed(node, root) {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to \
                       convert structural schema to CEL declarations";
            self.rule_errors.push(Error::internal(&path.child("x-kubernetes-validations"), why));
            return;
        }
        for (i, rule) in rules.iter().enumerate() {
            let Value::Object(members) = rule else { continue };
            let at = path.child("x-kubernetes-validations").index(i);
            let optional = members.get("optionalOldSelf").and_then(Value::as_bool);
            let scope = Scope { schema: &schema, root, optional_old: optional == Some(true) };
            let uses_old = match crate::cel::check_rule(text(members, "rule"), scope) {
                Ok(accepted) => {
                    let cost = place.cardinality.total(accepted.cost, &schema);
                    self.cost("estimated rule cost", cost, at.child("rule"));
                    self.message(members, rule, scope, &at.child("messageExpression"));
                    accepted.uses_old
                }
                Err(why) => {
                    self.rule_errors.push(Error::invalid(&at.child("rule"), rule.clone(), why.to_string()));
                    false
                }
            };
            if uses_old {
                if let Some(where_) = &place.uncorrelated {
                    let why =
                        format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {where_}");
                    self.rule_errors.push(Error::invalid(&at.child("rule"), text(members, "rule"), why));
                }
            } else if let Some(optional) = optional {
                let why = "may not be set if oldSelf is not used in rule";
                self.rule_errors.push(Error::invalid(&at.child("optionalOldSelf"), optional, why));
            }
        }
    }
}

/// Whether CEL has a type for the values of a node (`SchemaDeclType` of `k8s.io/apiserver/pkg/cel/common`). `root`: it is that of
/// a resource, which is an object whatever it says.
pub(super) fn is_typed(node: &Node, root: bool) -> bool {
    if flag(node, "x-kubernetes-int-or-string") {
        return true;
    }
    let kind = if root || flag(node, "x-kubernetes-embedded-resource") { "object" } else { text(node, "type") };
    match kind {
        "array" => object(node, "items").is_some_and(|items| is_typed(items, false)),
        "object" => object(node, "additionalProperties").is_none_or(|values| is_typed(values, false)),
        "string" | "boolean" | "number" | "integer" => true,
        _ => false,
    }
}

/// A schema without the types that do not exist, which are no reason not to look where its fields are.
fn without_odd_types(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let is_odd = |name: &str, value: &Value| {
                name == "type" && value.as_str().is_some_and(|kind| !kind.is_empty() && !TYPES.contains(&kind))
            };
            let kept = members.iter().filter(|(name, value)| !is_odd(name, value));
            Value::Object(kept.map(|(name, value)| (name.clone(), without_odd_types(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_odd_types).collect(),
        other => other.clone(),
    }
}
