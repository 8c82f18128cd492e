//! Which fields of tasks may be searched: those that an index covers, so that no request reads all tasks.

use std::collections::BTreeSet;

use crate::values::tags::NAMES;

/// The indexes as clients see them: `_id` is called `id`, and an index that another one starts with is left
/// out.
pub fn for_display(indexes: &BTreeSet<Vec<String>>) -> Vec<Vec<String>> {
    let contained = |short: &Vec<String>| indexes.iter().any(|long| long != short && long.starts_with(short));
    let shown = |name: &String| if name == "_id" { "id".to_owned() } else { name.clone() };
    indexes.iter().filter(|index| !contained(index)).map(|index| index.iter().map(shown).collect()).collect()
}

/// The same with indexes that only have some tasks, and serve a search for certain values: tasks of a schedule, and those with tags, of
/// which each is looked at for the rest. They are not shown, as Perl Disbatch has none of them.
pub fn with_ours(indexes: &[Vec<String>]) -> Vec<Vec<String>> {
    let mut all = indexes.to_vec();
    all.push(["schedule", "status"].map(str::to_owned).to_vec());
    for tags in NAMES {
        all.extend(["queue", "status", "node"].map(|field| vec![tags.to_owned(), field.to_owned()]));
    }
    all
}

/// Those of `names` that no index covers. A field is covered if all fields before it in an index are given.
pub fn not_covered(names: &[&str], indexes: &[Vec<String>]) -> Vec<String> {
    let given = |field: &String| names.contains(&field.as_str());
    let covered: BTreeSet<&str> = indexes
        .iter()
        .flat_map(|index| index.iter().take_while(|field| given(field)).map(String::as_str))
        .collect();
    names.iter().filter(|name| !covered.contains(*name)).map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexes() -> Vec<Vec<String>> {
        for_display(
            &["_id", "node status queue", "node status queue _id", "queue status"]
                .iter()
                .map(|index| index.split(' ').map(str::to_owned).collect())
                .collect(),
        )
    }

    #[test]
    fn contained_indexes_are_not_shown() {
        assert_eq!(indexes(), [vec!["id"], vec!["node", "status", "queue", "id"], vec!["queue", "status"]]);
    }

    #[test]
    fn fields_need_those_before_them() {
        let indexes = indexes();
        for covered in
            [&["id"][..], &["queue"], &["queue", "status"], &["node", "queue"], &["node", "status"]]
        {
            assert!(not_covered(covered, &indexes).is_empty(), "{covered:?}");
        }
        assert_eq!(not_covered(&["status"], &indexes), ["status"]);
        assert_eq!(not_covered(&["schedule"], &indexes), ["schedule"]);
        assert!(not_covered(&["schedule", "status"], &with_ours(&indexes)).is_empty());
        let tagged = ["any_tags", "node", "status", "tags"];
        assert!(not_covered(&tagged, &with_ours(&indexes)).is_empty());
        assert_eq!(not_covered(&["tags", "params.a"], &with_ours(&indexes)), ["params.a"]);
        assert_eq!(not_covered(&["$where"], &indexes), ["$where"]);
        assert_eq!(not_covered(&["_id"], &indexes), ["_id"]);
        assert_eq!(not_covered(&["params.commands", "queue"], &indexes), ["params.commands"]);
    }
}
