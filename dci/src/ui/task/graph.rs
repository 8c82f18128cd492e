//! What a task comes after, and what comes after it, as a picture.

use std::collections::HashMap;

use askama::Template;
use bson::Document;
use disbatch_core::accounts::Reach;
use disbatch_core::gates::{Neighbour, Neighbours};
use disbatch_core::model::{Status, TaskId};

use super::attempts::Culprit;
use crate::access::Sight;
use crate::error::HttpError;
use crate::state::State;
use crate::ui::names::{Link, Names, end_of};
use crate::ui::parts::counted;
use crate::{gates, ui};

const DEPTH: i32 = 3;

const MOST: usize = 40;

const WIDTH: usize = 190;
const HEIGHT: usize = 46;

const BETWEEN: usize = 56;
const ABOVE: usize = 14;

const MARGIN: usize = 8;

/// So many letters are in a box beside each other: of a name, and of what is below it.
const NAME: usize = 21;
const BELOW: usize = 24;

/// The picture. Nothing if the task is alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "task/graph.html")]
pub struct Graph {
    width: usize,
    height: usize,
    nodes: Vec<Node>,
    /// The path of each, and whether it waits.
    edges: Vec<(String, bool)>,
    more: bool,
    words: String,
    /// The tasks that it comes after and that have ended without success: it may have been cancelled for them.
    pub culprits: Vec<Culprit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    x: usize,
    y: usize,
    name: String,
    below: String,
    /// What it is called in a sentence, with its page if it has one for who looks.
    task: Link,
    class: &'static str,
    here: bool,
    title: String,
}

impl Graph {
    pub async fn find(state: &State, id: TaskId, task: &Document, reach: &Reach) -> Result<Self, HttpError> {
        // What is after no other, and what nobody has ever waited for, is alone.
        if !task.contains_key("after") && !task.contains_key("dependents") {
            return Ok(Self::default());
        }
        let graph = state.store.neighbours(id, DEPTH, MOST).await?;
        let queues = state.store.queues_within(reach).await?;
        let tasks = graph.tasks.iter().map(|task| task.id);
        let names = Names::read(state, &queues, tasks).await?;
        let sight = Sight::of(&state.store, reach).await?;
        Ok(Self::of(&graph, id, &sight, &names))
    }

    fn of(graph: &Neighbours, here: TaskId, sight: &Sight, names: &Names) -> Self {
        if graph.tasks.len() < 2 {
            return Self::default();
        }
        let places = places(graph);
        let nodes: Vec<Node> = graph
            .tasks
            .iter()
            .zip(&places)
            .map(|(task, place)| node(task, *place, here, (sight, names)))
            .collect();
        let has_failed = |task: &Neighbour| {
            task.status.is_none_or(|status| status.has_ended() && status != Status::Succeeded)
        };
        let directly_before = graph.tasks.iter().zip(&nodes).filter(|(task, _)| task.distance == -1);
        let culprits = directly_before.filter(|(task, _)| has_failed(task));
        let culprit = |(task, node): (&Neighbour, &Node)| Culprit {
            task: node.task.clone(),
            how: Culprit::how(task.status),
        };
        let culprits = culprits.map(culprit).collect();
        let edge = |(from, to, waiting): &(usize, usize, bool)| {
            let (from, to) = (places.get(*from)?, places.get(*to)?);
            Some((path(*from, *to), *waiting))
        };
        let own = graph.tasks.iter().position(|task| task.id == here);
        let before = graph.edges.iter().filter(|(_, to, _)| Some(*to) == own).count();
        let after = graph.edges.iter().filter(|(from, ..)| Some(*from) == own).count();
        let most = |of: fn(&(usize, usize)) -> usize| places.iter().map(of).max().unwrap_or(0);
        Self {
            width: most(|(x, _)| *x) + WIDTH + MARGIN,
            height: most(|(_, y)| *y) + HEIGHT + MARGIN,
            edges: graph.edges.iter().filter_map(edge).collect(),
            nodes,
            culprits,
            more: graph.more,
            words: format!(
                "Comes directly after {}, and directly before {}",
                counted(before, "task"),
                counted(after, "task")
            ),
        }
    }
}

fn node(task: &Neighbour, (x, y): (usize, usize), here: TaskId, (sight, names): (&Sight, &Names)) -> Node {
    let class = task.status.map_or("gone", Status::word);
    let word = task.status.map_or("gone", ui::word);
    if !gates::is_seen(task, sight) {
        let task = Link::nowhere("a task of another queue");
        let (name, title) = ("another queue".to_owned(), format!("A task of another queue: {word}"));
        return Node { x, y, name, below: word.to_owned(), task, class, here: false, title };
    }
    let id = task.id.to_string();
    let queue = task.queue.and_then(|queue| names.queues.get(&queue.0)).cloned().unwrap_or_default();
    let below = if queue.is_empty() { word.to_owned() } else { fitted(&format!("{word}, {queue}"), BELOW) };
    let title = names.tasks.of(&task.id);
    let name = if title.is_empty() { end_of(&id) } else { fitted(title, NAME) };
    let of_sentence = if title.is_empty() { format!("the task {}", end_of(&id)) } else { title.to_owned() };
    let address = (task.status.is_some() && task.id != here).then(|| format!("/tasks/{id}"));
    let of = if queue.is_empty() { String::new() } else { format!(" of {queue}") };
    let words = if title.is_empty() { id } else { format!("{id}, {title}") };
    Node {
        x,
        y,
        name,
        below,
        task: Link { name: of_sentence, address },
        class,
        here: task.id == here,
        title: format!("Task {words}{of}: {word}"),
    }
}

/// As much of a text as has a place in so many letters; letters of Asian scripts and pictures are twice as wide.
fn fitted(text: &str, letters: usize) -> String {
    let width = |c: char| if matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..) { 2 } else { 1 };
    if text.chars().map(width).sum::<usize>() <= letters {
        return text.to_owned();
    }
    let mut taken = 1; // The sign that there is more.
    let fits = |c: &char| {
        taken += width(*c);
        taken <= letters
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

fn places(graph: &Neighbours) -> Vec<(usize, usize)> {
    let layers = layers(graph.tasks.len(), &graph.edges);
    let rows = |layer: usize| layers.iter().filter(|other| **other == layer).count();
    let most = layers.iter().map(|layer| rows(*layer)).max().unwrap_or(0);
    let mut taken: HashMap<usize, usize> = HashMap::new();
    let mut places = Vec::with_capacity(layers.len());
    for layer in &layers {
        let row = taken.entry(*layer).or_default();
        // Each column in the middle.
        let top = (most - rows(*layer)) * (HEIGHT + ABOVE) / 2;
        places.push((MARGIN + layer * (WIDTH + BETWEEN), MARGIN + top + *row * (HEIGHT + ABOVE)));
        *row += 1;
    }
    places
}

/// In which column each task is: right of all that it comes after. Documents may be odd, and lead in a circle.
fn layers(tasks: usize, edges: &[(usize, usize, bool)]) -> Vec<usize> {
    let mut layers = vec![0; tasks];
    for _ in 0..tasks {
        let mut changed = false;
        for (from, to, _) in edges {
            let wanted = layers.get(*from).map_or(0, |layer| layer + 1);
            if let Some(layer) = layers.get_mut(*to)
                && *layer < wanted
                && wanted < tasks
            {
                *layer = wanted;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    layers
}

fn path(from: (usize, usize), to: (usize, usize)) -> String {
    let (x1, y1) = (from.0 + WIDTH, from.1 + HEIGHT / 2);
    let (x2, y2) = (to.0, to.1 + HEIGHT / 2);
    let middle = usize::midpoint(x1, x2);
    format!("M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bson::oid::ObjectId;
    use disbatch_core::model::QueueId;

    use super::*;
    use crate::ui::names::Called;

    fn id(number: u8) -> TaskId {
        TaskId(ObjectId::from_bytes([number; 12]))
    }

    fn task(number: u8, queue: QueueId, status: Option<i64>, distance: i32) -> Neighbour {
        Neighbour { id: id(number), queue: Some(queue), status: status.map(Status::from_code), distance }
    }

    #[test]
    fn a_picture_leads_from_left_to_right_and_tells_nothing_of_other_queues() {
        let [mine, other] = [7, 8].map(|number| QueueId(ObjectId::from_bytes([number; 12])));
        let graph = Neighbours {
            tasks: vec![task(1, mine, Some(1), -1), task(2, other, Some(0), -1), task(3, mine, Some(-4), 0)],
            edges: vec![(0, 2, false), (1, 2, true)],
            more: true,
        };
        let queues = HashMap::from([(mine.0, "<mail>".to_owned()), (other.0, "secret".to_owned())]);
        let tasks = Called::from([(id(1), "send <b>".to_owned()), (id(2), "secret".to_owned())]);
        let names = Names { queues, tasks };
        let graph = Graph::of(&graph, id(3), &Sight::Only(HashSet::from([mine])), &names);
        assert!(graph.nodes[2].x > graph.nodes[0].x && graph.nodes[0].y < graph.nodes[1].y);
        let html = graph.render().unwrap();
        for part in [
            "href=\"/tasks/010101010101010101010101\"",
            "Comes directly after 2 tasks, and directly before 0 tasks",
            "succeeded, &#60;mail&#62;",
            ">send &#60;b&#62;</text>",
            ">…030303</text>",
            "another queue",
            "class=\"waiting\"",
            "blocked here",
            "more tasks than are shown",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("0202") && !html.contains("secret") && !html.contains(" style="), "{html}");
        assert!(!html.contains("/tasks/030303030303030303030303\""), "that is this page: {html}");
    }

    #[test]
    fn what_is_too_long_for_its_box_is_cut_and_told_when_it_is_pointed_at() {
        let mine = QueueId(ObjectId::from_bytes([7; 12]));
        let graph = Neighbours {
            tasks: vec![task(1, mine, Some(2), -1), task(3, mine, Some(-5), 0)],
            edges: vec![(0, 1, false)],
            more: false,
        };
        let queues = HashMap::from([(mine.0, "reports of the quarter for all".to_owned())]);
        let long = "convert the very long name of a file.png";
        let tasks = Called::from([(id(1), long.to_owned()), (id(3), "写".repeat(20))]);
        let graph = Graph::of(&graph, id(3), &Sight::All, &Names { queues, tasks });
        let html = graph.render().unwrap();
        for part in [
            ">convert the very lon…</text>",
            ">failed, reports of the …</text>",
            ">写写写写写写写写写写…</text>",
            "<title>Task 010101010101010101010101, convert the very long name of a file.png of reports of the quarter for all: failed</title>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!((graph.culprits[0].task.name.as_str(), graph.culprits[0].how), (long, "failed"));
    }

    #[test]
    fn a_task_alone_has_no_picture() {
        let queue = QueueId(ObjectId::from_bytes([7; 12]));
        let alone = Neighbours { tasks: vec![task(1, queue, Some(1), 0)], ..Neighbours::default() };
        let graph = Graph::of(&alone, id(1), &Sight::All, &Names::default());
        assert_eq!(graph, Graph::default());
        let html = graph.render().unwrap();
        assert!(html.contains("id=\"task-graph\"") && !html.contains("<svg"), "{html}");
    }

    #[test]
    fn circles_come_to_an_end() {
        assert_eq!(layers(3, &[(0, 1, false), (1, 2, false)]), [0, 1, 2]);
        assert_eq!(layers(4, &[(0, 1, false), (1, 3, false), (0, 3, false), (2, 3, false)]), [0, 1, 0, 2]);
        assert!(layers(2, &[(0, 1, false), (1, 0, false)]).iter().all(|layer| *layer < 2));
        assert_eq!(layers(1, &[(0, 0, false), (5, 9, false)]), [0]);
    }
}
