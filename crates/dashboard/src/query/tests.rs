//! Pages of generated tables, compared with a table that is sorted as a whole.

use super::*;
use proptest::prelude::*;

fn row(number: usize) -> Row {
    let states = ["Running", "Pending", "Failed", "Restarting (2)", "Complete"];
    let state = states[number % states.len()];
    Row {
        kind: Kind::ALL[number % Kind::ALL.len()],
        namespace: format!("ns-{}", number % 3),
        name: format!("job-{number}"),
        title: format!("job-{number}"),
        uid: number.to_string(),
        state: state.to_owned(),
        group: crate::row::group(state),
        reason: String::new(),
        progress: (!number.is_multiple_of(4)).then_some(number as i64 % 100),
        nodes: (!number.is_multiple_of(5)).then_some(number as i64 % 7),
        gpus: number as i64 % 9,
        restarts: 0,
        queue: format!("queue-{}", number % 2),
        runtime: "torch".to_owned(),
        owner: String::new(),
        search: String::new(),
        created: number as i64 % 50,
        trials: 0,
    }
}

fn parse(parameters: &[(&str, &str)]) -> Result<Query, BadQuery> {
    let owned: Vec<(String, String)> = parameters.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    Query::parse(&owned)
}

proptest! {
    /// Page after page shows each row of the view once, in the view's order.
    #[test]
    fn pages_are_the_whole_view_in_its_order(
        count in 0_usize..120,
        limit in 1_usize..40,
        column in 0_usize..8,
        is_descending in any::<bool>(),
        text in prop::option::of("[0-9]"),
        state in prop::option::of(prop::sample::select(vec!["running", "failed", "restarting"])),
    ) {
        let rows: Vec<Row> = (0..count).map(row).collect();
        let sort = Column::ALL[column].0;
        let order = if is_descending { "desc" } else { "asc" };
        let limit = limit.to_string();
        let mut parameters = vec![("sort", sort), ("order", order), ("limit", limit.as_str())];
        parameters.extend(text.as_deref().map(|text| ("text", text)));
        parameters.extend(state.map(|state| ("state", state)));
        let query = parse(&parameters).unwrap();
        let mut expected: Vec<Row> = rows
            .iter()
            .filter(|row| query.is_meant(row) && state.is_none_or(|state| row.group == state))
            .cloned()
            .collect();
        expected.sort_by(|a, b| query.compare(a, b));
        let mut shown: Vec<Row> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut more = parameters.clone();
            more.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page = parse(&more).unwrap().page(rows.clone());
            prop_assert_eq!(page.total, expected.len());
            prop_assert_eq!(page.before, shown.len());
            prop_assert!(page.rows.len() <= query.limit);
            shown.extend(page.rows);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        prop_assert_eq!(shown, expected);
    }

    /// No parameter makes it panic.
    #[test]
    fn any_parameter_is_read_or_refused(name in "(kind|sort|order|limit|cursor|text|state|[a-z]{1,8})", value in ".{0,40}") {
        let _ = parse(&[(&name, &value)]);
    }
}

#[test]
fn what_is_made_up_is_refused_in_words() {
    let refused = |name: &str, value: &str| parse(&[(name, value)]).unwrap_err().to_string();
    assert!(refused("kind", "pod").contains("none of trainjob"));
    assert!(refused("sort", "colour").contains("columns: created"));
    assert!(refused("limit", "0").contains("from 1 to 200") && refused("limit", "many").contains("from 1 to 200"));
    assert!(refused("order", "up").contains("asc, desc"));
    assert!(refused("cursor", "00").contains("open the first page") && refused("cursor", "é").contains("first page"));
    assert!(refused("colour", "red").contains("no parameter"));
    assert!(refused("text", &"x".repeat(TEXT_MAX + 1)).contains("longer"));
    // a cursor of another order leads nowhere
    let page = parse(&[("sort", "name"), ("limit", "1")]).unwrap().page((0..3).map(row));
    let next = page.next.unwrap();
    assert_eq!(parse(&[("sort", "gpus"), ("cursor", &next)]), Err(BadQuery::Cursor));
}

#[test]
fn counts_are_of_all_states_and_trials_are_folded() {
    let mut rows: Vec<Row> = (0..10).map(row).collect();
    rows[0].search = "sweep".to_owned();
    let page = parse(&[("state", "failed")]).unwrap().page(rows.clone());
    assert_eq!(page.total, 2);
    assert_eq!(page.counts.get("pending"), Some(&2));
    assert_eq!(page.counts.get("running"), Some(&1), "the trial is not counted");
    assert_eq!(parse(&[("search", "sweep")]).unwrap().page(rows).total, 1);
}
