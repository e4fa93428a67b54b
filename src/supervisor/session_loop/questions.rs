//! Queues the connections of a cell that wait for the caller's decision.

use std::collections::VecDeque;

use sandfork_egress::control::Question;

/// The most undecided questions of a cell.
const MAX_QUESTIONS: usize = 64;

/// The undecided questions of one cell, in order of arrival. The caller holds the first one. The others are queued here
/// and dropped at the end of the cell. Otherwise a caller that takes its time for each decision would keep deciding for
/// a guest that has ended.
#[derive(Debug, Default)]
pub struct OpenQuestions(VecDeque<Question>);

impl OpenQuestions {
    /// Whether another question may be added.
    pub fn has_room(&self) -> bool {
        self.0.len() < MAX_QUESTIONS
    }

    /// Adds a question. Returns the question to ask the caller now, if any.
    pub fn push(&mut self, question: Question) -> Option<Question> {
        self.0.push_back(question);
        self.0.front().filter(|_| self.0.len() == 1).cloned()
    }

    /// Removes a decided question. Returns the question to ask the caller next, if any.
    pub fn decided(&mut self, number: u64) -> Option<Question> {
        self.0.front().filter(|first| first.question == number)?;
        self.0.pop_front();
        self.0.front().cloned()
    }

    /// Returns the numbers of the undecided questions.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|question| question.question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: u64) -> Question {
        Question {
            question: number,
            host: "db.example".into(),
            port: 443,
            addresses: Vec::new(),
        }
    }

    #[test]
    fn caller_gets_one_question_at_a_time() {
        let mut questions = OpenQuestions::default();
        assert_eq!(questions.push(question(4)), Some(question(4)));
        assert_eq!(questions.push(question(5)), None);
        assert_eq!(questions.push(question(6)), None);
        // The caller has not been asked this question.
        assert_eq!(questions.decided(6), None);
        assert_eq!(questions.decided(4), Some(question(5)));
        assert_eq!(questions.decided(5), Some(question(6)));
        assert_eq!(questions.decided(6), None);
        assert_eq!(questions.push(question(7)), Some(question(7)));
    }

    #[test]
    fn number_of_open_questions_is_limited() {
        let mut questions = OpenQuestions::default();
        for number in 0..MAX_QUESTIONS as u64 {
            assert!(questions.has_room());
            questions.push(question(number));
        }
        assert!(!questions.has_room());
    }
}
