#include "schedule/missing_gradients.h"

#include <algorithm>
#include <utility>

namespace hvd {

void MissingGradients::ask(size_t position, std::string question, std::vector<std::string> names) {
  Question& one = questions_.emplace_back();
  one.position = position;
  one.name = std::move(question);
  one.decisions.resize(names.size());
  one.about = std::move(names);
}

bool MissingGradients::lacks(size_t position, const std::string& name) const {
  return std::ranges::any_of(questions_, [&](const Question& one) {
    return one.position == position && std::ranges::find(one.about, name) != one.about.end();
  });
}

bool MissingGradients::all_lack(const std::string& name, const IsSettled& has_joined) const {
  for (size_t position = 0; position < ranks_; ++position) {
    if (!has_joined(position) && !lacks(position, name)) return false;
  }
  return true;
}

// Of all that ask about it: a rank whose other names are undecided must not hear something else later.
void MissingGradients::decide(const std::string& name, MissingGradient decision) {
  for (Question& one : questions_) {
    for (size_t i = 0; i < one.about.size(); ++i) {
      if (one.about[i] == name && !one.decisions[i]) one.decisions[i] = decision;
    }
  }
}

std::vector<MissingGradients::Answer> MissingGradients::answer(const HasStarted& has_started, const IsSettled& has_joined) {
  for (const Question& one : questions_) {
    for (size_t i = 0; i < one.about.size(); ++i) {
      if (one.decisions[i]) continue;
      if (has_started(one.about[i])) {
        completed_.insert(one.about[i]);
        decide(one.about[i], MissingGradient::kStart);
      } else if (all_lack(one.about[i], has_joined)) {
        decide(one.about[i], MissingGradient::kNobodyHasIt);
      }
    }
  }
  std::vector<Answer> answers;
  std::erase_if(questions_, [&](Question& one) {
    if (!std::ranges::all_of(one.decisions, [](const auto& decision) { return decision.has_value(); })) return false;
    Answer& answer = answers.emplace_back(Answer{std::move(one.name), {}});
    for (const auto& decision : one.decisions) answer.decisions.push_back(static_cast<int64_t>(*decision));
    return true;
  });
  return answers;
}

std::optional<std::vector<size_t>> MissingGradients::waits_for(const std::string& question, const IsSettled& has_joined,
                                                               const HasAsked& has_asked) const {
  const auto one = std::ranges::find(questions_, question, &Question::name);
  if (one == questions_.end()) return std::nullopt;
  std::vector<size_t> positions;
  for (size_t position = 0; position < ranks_; ++position) {
    bool is_awaited = false;
    for (size_t i = 0; i < one->about.size(); ++i) {
      is_awaited = is_awaited || (!one->decisions[i] && !lacks(position, one->about[i]) && !has_asked(position, one->about[i]));
    }
    if (is_awaited && !has_joined(position)) positions.push_back(position);
  }
  return positions;
}

bool MissingGradients::release(const std::string& question) {
  const auto one = std::ranges::find(questions_, question, &Question::name);
  if (one == questions_.end()) return false;
  for (auto& decision : one->decisions) {
    if (!decision) decision = MissingGradient::kNotYet;
  }
  return true;
}

std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(name).push_back('\0');
  return text;
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  for (size_t from = 0, to; (to = text.find('\0', from)) != std::string::npos; from = to + 1) {
    names.push_back(text.substr(from, to - from));
  }
  return names;
}

}  // namespace hvd
