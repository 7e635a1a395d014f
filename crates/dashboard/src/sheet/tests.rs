//! What a view makes of a page: order, search, cuts.

use super::*;

fn view(parameters: &[(&str, &str)]) -> Result<View, String> {
    let parameters: Vec<(String, String)> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    View::parse(&parameters).map_err(|problem| problem.message)
}

fn sheet() -> Sheet {
    let row = |name: &str, at: i64, count: usize| {
        vec![Cell::link(format!("/x/{name}"), name), Cell::Age { at: Some(at) }, Cell::count(count)]
    };
    let rows = vec![row("b", 10, 9), row("a", 30, 10), row("C", 20, 2)];
    Sheet { parts: vec![main_table(&["Name", "Age", "Count"], rows, "none", "make one")], ..Sheet::default() }
}

fn names(sheet: &Sheet) -> Vec<&str> {
    let [Part::Table { rows, .. }] = sheet.parts.as_slice() else { panic!("{sheet:?}") };
    rows.iter().map(|row| row[0].words()).collect()
}

#[test]
fn rows_are_sorted_by_what_they_mean() {
    for (parameters, wanted) in [
        (vec![], ["b", "a", "C"]),
        (vec![("sort", "Name")], ["a", "b", "C"]),
        (vec![("sort", "Name"), ("order", "desc")], ["C", "b", "a"]),
        (vec![("sort", "Age")], ["a", "C", "b"]),
        (vec![("sort", "Count")], ["C", "b", "a"]),
    ] {
        assert_eq!(names(&view(&parameters).unwrap().of(sheet()).unwrap()), wanted, "{parameters:?}");
    }
}

#[test]
fn rows_are_searched_and_an_empty_answer_says_why() {
    assert_eq!(names(&view(&[("text", "c")]).unwrap().of(sheet()).unwrap()), ["C"]);
    let none = view(&[("text", "zzz")]).unwrap().of(sheet()).unwrap();
    let [Part::Table { empty, empty_command, .. }] = none.parts.as_slice() else { panic!() };
    assert_eq!((empty.as_str(), empty_command), ("No row contains that text.", &None));
    let mut sheet = sheet();
    sheet.parts = vec![main_table(&["Name"], Vec::new(), "none", "make one")];
    let none = view(&[("text", "zzz")]).unwrap().of(sheet).unwrap();
    let [Part::Table { empty, empty_command, .. }] = none.parts.as_slice() else { panic!() };
    assert_eq!((empty.as_str(), empty_command.as_deref()), ("none", Some("make one")));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (parameters, wanted) in [
        (vec![("sort", "Colour")], "rows cannot be sorted by \"Colour\"; columns: Name, Age, Count"),
        (vec![("order", "up")], "order \"up\" is none of asc, desc"),
        (vec![("cursor", "x")], "there is no parameter \"cursor\""),
    ] {
        let told = view(&parameters).and_then(|view| view.of(sheet()).map_err(|problem| problem.message));
        assert_eq!(told.unwrap_err(), wanted);
    }
    assert!(view(&[("text", &"x".repeat(201))]).unwrap_err().contains("longer than 200 bytes"));
    assert!(view(&[("namespace", "../x")]).unwrap_err().contains("is not a namespace"));
}

#[test]
fn a_long_table_is_cut_and_says_so() {
    let rows = (0..1500).map(|number| vec![Cell::count(number)]).collect();
    let long = Sheet { parts: vec![main_table(&["Number"], rows, "", "")], ..Sheet::default() };
    let cut = View::default().of(long).unwrap();
    let [Part::Table { rows, left_out, .. }] = cut.parts.as_slice() else { panic!() };
    assert_eq!((rows.len(), *left_out), (1000, 500));
}

#[test]
fn parts_of_a_whole_stay_between_0_and_100() {
    for (part, whole, wanted) in [(1.0, 4.0, 25), (9.0, 4.0, 100), (1.0, 0.0, 0), (f64::NAN, 4.0, 0)] {
        assert_eq!(
            Cell::part(part, whole, String::new()),
            Cell::Bar { percent: wanted, text: String::new() },
            "{part} of {whole}"
        );
    }
}

#[test]
fn columns_without_a_word_are_dropped() {
    let row = |name: &str, why: &str| {
        vec![Cell::text(name), Cell::text(why), Cell::Age { at: None }, Cell::text("-"), Cell::text("x")]
    };
    let headings = ["Name", "Why", "Since", "Price", "Last"];
    let part = |rows| Sheet { parts: vec![main_table(&headings, rows, "", "")], ..Sheet::default() };
    let titles = |sheet: Sheet| {
        let [Part::Table { headings, rows, .. }] = sheet.parts.as_slice() else { panic!() };
        assert!(rows.iter().all(|row| row.len() == headings.len()));
        headings.iter().map(|heading| heading.title).collect::<Vec<_>>()
    };
    let view = view(&[("sort", "Why")]).unwrap();
    assert_eq!(titles(view.of(part(vec![row("a", ""), row("b", "it waits")])).unwrap()), ["Name", "Why", "Last"]);
    assert_eq!(titles(view.of(part(vec![row("a", ""), row("b", "")])).unwrap()), ["Name", "Last"]);
    assert_eq!(titles(view.of(part(Vec::new())).unwrap()), headings);
}
