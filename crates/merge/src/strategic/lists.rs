//! Lists: which merge element by element, how, and in what order.

use super::*;

/// Whether the elements of two lists are objects (`true`) or scalars; they must all be of one type.
pub(super) fn list_kind(a: &[Value], b: &[Value]) -> Result<bool, PatchError> {
    let mut seen: Option<&'static str> = None;
    for item in a.iter().chain(b) {
        let name = gotext::type_name(item);
        match seen {
            Some(before) if before != name => {
                let shown = [a, b].map(|list| gotext::plain(&Value::from(list)));
                return internal(format!("list element types are not identical: [{}]", shown.join(" ")));
            }
            None if item.is_array() => {
                return Err(PatchError::Unprocessable("lists of lists are not supported".to_owned()));
            }
            Some(_) | None => seen = Some(name),
        }
    }
    Ok(a.iter().chain(b).next().is_some_and(Value::is_object))
}

pub(super) fn merge_field_list(
    original: Vec<Value>,
    patch: &[Value],
    schema: &Schema,
) -> Result<Vec<Value>, PatchError> {
    if !schema.patch.merge {
        return Ok(patch.to_vec());
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !list_kind(&original, patch)? {
        let mut seen = BTreeSet::new();
        let merged = original.iter().chain(patch).filter(|item| seen.insert(Ordered(item))).cloned().collect();
        return Ok(weave(merged, patch, &original, &Identity::Itself));
    }
    let Some(key) = schema.patch.merge_key.as_deref() else {
        return internal(format!("cannot merge lists without merge key for {}", gotext::type_name(&Value::Null)));
    };
    let (original, patch) = apply_list_directives(original, patch, key)?;
    let identity = Identity::Key(key);
    let mut merged = original.clone();
    let mut places =
        order::first_of(original.iter().enumerate().filter_map(|(i, item)| Some((Ordered(item.get(key)?), i))));
    for change in &patch {
        let Some(members) = change.as_object() else { continue };
        let Some(value) = members.get(key) else { return no_merge_key(members, key) };
        match places.get(&Ordered(value)).and_then(|place| merged.get_mut(*place)) {
            Some(Value::Object(found)) => {
                *found = merge_object(std::mem::take(found), members, element(schema))?;
            }
            // Elements are objects: checked above.
            Some(_) | None => {
                places.insert(Ordered(value), merged.len());
                merged.push(change.clone());
            }
        }
    }
    for item in &merged {
        if let Some(members) = item.as_object().filter(|members| !members.contains_key(key)) {
            return no_merge_key(members, key);
        }
    }
    Ok(weave(merged, &patch, &original, &identity))
}

/// Carries out `$patch` in elements: returns the elements that remain and those to merge.
pub(super) fn apply_list_directives(
    mut original: Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut changes = Vec::with_capacity(patch.len());
    let mut gone = BTreeSet::new();
    let mut replace = false;
    for change in patch {
        let Some(members) = change.as_object() else { continue };
        let Some(directive) = members.get(DIRECTIVE) else {
            changes.push(change.clone());
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let Some(value) = members.get(key) else { return no_merge_key(members, key) };
                gone.insert(Ordered(value));
            }
            Some("replace") => replace = true,
            Some("merge") => return internal("merging lists cannot yet be specified in the patch".to_owned()),
            _ => return bad_directive(directive, members),
        }
    }
    original.retain(|item| item.get(key).is_none_or(|value| !gone.contains(&Ordered(value))));
    Ok(if replace { (changes, Vec::new()) } else { (original, changes) })
}

/// What makes two elements the same one.
pub(super) enum Identity<'a> {
    Itself,
    Key(&'a str),
}

impl Identity<'_> {
    fn of<'v>(&self, item: &'v Value) -> Option<Ordered<'v>> {
        match self {
            Self::Itself => Some(Ordered(item)),
            Self::Key(key) => item.get(*key).map(Ordered),
        }
    }

    /// Where in a list what is the same as an item stands first.
    fn positions<'v>(&self, list: &'v [Value]) -> BTreeMap<Option<Ordered<'v>>, usize> {
        order::first_of(list.iter().enumerate().map(|(position, item)| (self.of(item), position)))
    }
}

/// Orders `merged`: elements that `order` names as it orders them, the others as `live` has them, woven together by `live`.
pub(super) fn weave(merged: Vec<Value>, order: &[Value], live: &[Value], identity: &Identity<'_>) -> Vec<Value> {
    let (order, live) = (identity.positions(order), identity.positions(live));
    let live = |item: &Value| live.get(&identity.of(item)).copied();
    let mut named: Vec<(usize, Value)> = Vec::new();
    let mut others: Vec<(usize, Value)> = Vec::new();
    for item in merged {
        match order.get(&identity.of(&item)) {
            Some(at) => named.push((*at, item)),
            None => others.push((live(&item).unwrap_or(usize::MAX), item)),
        }
    }
    named.sort_by_key(|(at, _)| *at);
    others.sort_by_key(|(at, _)| *at);
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().map(|(_, item)| item).peekable();
    let mut others = others.into_iter().map(|(_, item)| item).peekable();
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(name)) => {
                matches!((live(other), live(name)), (Some(o), Some(n)) if o < n)
            }
        };
        out.extend(if other_first { others.next() } else { named.next() });
    }
}

/// Merges the list `name` and puts it into the order that `$setElementOrder` gives. Returns whether that did the field.
pub(super) fn merge_in_order(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    name: &str,
    order: &Value,
    schema: &Schema,
) -> Result<bool, PatchError> {
    let wrong = |value: &Value| unexpected("[]interface {}", value);
    let Value::Array(order) = order else { return wrong(order) };
    let live = match original.get(name) {
        Some(Value::Array(live)) => Some(live.clone()),
        Some(other) => return wrong(other),
        None => None,
    };
    let change = match patch.get(name) {
        Some(Value::Array(change)) => Some(change.as_slice()),
        Some(other) => return wrong(other),
        None => None,
    };
    let key = schema.patch.merge_key.as_deref();
    if let Some(change) = change {
        check_order(change, order, key)?;
    }
    let merged = match (live.clone(), change) {
        (None, None) => return Ok(false),
        (Some(live), None) => live,
        (None, Some(change)) => change.iter().filter_map(|item| without_directives(item, false)).collect(),
        (Some(live), Some(change)) => merge_field_list(live, change, schema)?,
    };
    let mut live = live.unwrap_or_default();
    let change = change.unwrap_or_default();
    if live.is_empty() && change.is_empty() {
        return internal("no elements in any of the given slices".to_owned());
    }
    let objects = list_kind(&live, change)?;
    if let Some(key) = key.filter(|_| schema.patch.merge && objects) {
        live = order_after_merge(live, change, key);
    }
    let identity = match key {
        Some(key) if objects => Identity::Key(key),
        Some(_) | None => Identity::Itself,
    };
    if let Identity::Key(key) = identity {
        for item in merged.iter().chain(order) {
            if let Some(members) = item.as_object().filter(|members| !members.contains_key(key)) {
                return no_merge_key(members, key);
            }
        }
    }
    original.insert(name.to_owned(), weave(merged, order, &live, &identity).into());
    Ok(true)
}

/// The order by which elements that the order list does not name are woven in: that of the live list as upstream's merge
/// leaves it, which deletes and appends in place. So an appended element takes the place of a deleted one.
pub(super) fn order_after_merge(live: Vec<Value>, patch: &[Value], key: &str) -> Vec<Value> {
    let visible = live.len();
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
    let mut places: BTreeMap<Option<Ordered<'_>>, Vec<usize>> = BTreeMap::new();
    for (place, item) in live.iter().enumerate() {
        places.entry(item.get(key).map(Ordered)).or_default().push(place);
    }
    let mut left: BTreeSet<usize> = (0..visible).collect();
    // What a deletion leaves at the end of the list as upstream shifts it: the element that was the last.
    let mut behind: Vec<usize> = Vec::new();
    for item in patch.iter().filter(|item| directive(item).as_deref() == Some("delete")) {
        for place in places.remove(&item.get(key).map(Ordered)).unwrap_or_default() {
            behind.extend(left.last());
            left.remove(&place);
        }
    }
    behind.reverse();
    let mut appended = Vec::new();
    if !patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        let mut known: BTreeSet<Option<Ordered<'_>>> = places.into_keys().collect();
        appended.extend(
            patch
                .iter()
                .filter(|item| directive(item).is_none())
                .filter(|item| known.insert(item.get(key).map(Ordered))),
        );
    }
    let overwritten = appended.len();
    let stays = left.iter().map(|place| &live[*place]);
    let list = stays.chain(appended).chain(behind.iter().skip(overwritten).map(|place| &live[*place]));
    list.take(visible).cloned().collect()
}

/// The patch's elements (but for directives) must stand in the order list, in the same order.
pub(super) fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = patch.iter().filter(|item| item.get(DIRECTIVE).is_none()).peekable();
    for item in order {
        let Some(next) = wanted.peek() else { break };
        let equal = match key {
            Some(key) => {
                for holder in [*next, item] {
                    match holder.as_object() {
                        Some(members) if !members.contains_key(key) => return no_merge_key(members, key),
                        Some(_) => {}
                        None => return unexpected("map[string]interface {}", holder),
                    }
                }
                next.get(key) == item.get(key)
            }
            None => *next == item,
        };
        if equal {
            wanted.next();
        }
    }
    if wanted.peek().is_some() {
        return internal(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
            gotext::plain(&patch.into()),
            gotext::plain(&order.into())
        ));
    }
    Ok(())
}
