//! What tasks write for terminals, as pages show it.

use disbatch_core::output::OutputEnd;
use disbatch_dci::input::page_of_output;

use crate::choice;

const TASK: &str = "6b0003bb686c8275d8013333";

/// The first byte says whether the task goes on, and whether there was output before; the rest is the end of its output.
///
/// # Panics
/// What was written is more than text on the page, or the page has a character that controls something.
pub fn check(bytes: &[u8]) -> bool {
    let Some((kind, output)) = choice(bytes) else { return false };
    let offset = if kind & 2 == 0 { 0 } else { 70_000 };
    let end = OutputEnd { offset, bytes: output.to_vec() };
    let page = match page_of_output(TASK, end, kind & 1 == 1) {
        Ok(page) => page,
        Err(refused) => panic!("{refused:?}"),
    };
    check_page(&page);
    !output.is_empty()
}

fn check_page(page: &str) {
    assert!(!page.contains("<script") && !page.contains('\u{1b}'), "{page}");
    let Some((before, rest)) = page.split_once("<pre") else { panic!("no output: {page}") };
    let Some((output, after)) = rest.split_once("</pre>") else { panic!("no end of the output: {page}") };
    assert!(!before.contains("</pre>") && !after.contains("<pre") && !after.contains("</pre>"), "{page}");
    // In the values of attributes these are written in other words.
    let Some((attributes, text)) = output.split_once('>') else { panic!("no text: {page}") };
    assert!(!attributes.contains('<') && attributes.matches('"').count() % 2 == 0, "{page}");
    assert!(!text.contains(['<', '>', '"', '\'']), "{page}");
    assert!(text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')), "{page:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "a<b>c"]
    fn an_element_in_the_output_is_found() {
        check_page("<section><pre>a<b>c</pre></section>");
    }

    #[test]
    #[should_panic = "2J"]
    fn a_control_character_in_the_output_is_found() {
        check_page("<section><pre>a\u{9b}2J</pre></section>");
    }
}
