#include "transport/tcp/connection.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hashes.h"

namespace hvd {
namespace {

constexpr uint64_t kLongestMessage = uint64_t{1} << 28;
constexpr size_t kLongestStep = size_t{1} << 20;  // memory for a message grows at most so far beyond the received bytes
constexpr size_t kLongestTurn = size_t{4} << 20;  // then other connections have their turn
constexpr size_t kFramesTogether = 8;             // two spans each

}  // namespace

Connection::Connection(Socket accepted, const Introduction& self, const ConnectionTerms& terms, TimePoint now)
    : terms_(terms),
      who_(self),
      begun_(now),
      attempted_(now),
      socket_(std::move(accepted)),
      stage_(Stage::kAwaitsHello),
      writable_(true),
      nonce_(draw_nonce()) {
  if (!send_handshake(challenge_with(nonce_))) error_ = "it takes no challenge";
}

Connection::Connection(const std::vector<std::string>& endpoints, const Introduction& who, const ConnectionTerms& terms,
                       TimePoint now)
    : endpoints_(&endpoints),
      terms_(terms),
      who_(who),
      peer_(static_cast<int>(who.to)),
      begun_(now),
      attempted_(now),
      stage_(Stage::kConnecting),
      nonce_(draw_nonce()) {
  attempt();
}

// ---- the handshake ---------------------------------------------------------------------------------------------------

void Connection::attempt() {
  const std::string& endpoint = (*endpoints_)[attempts_++ % endpoints_->size()];
  stage_ = Stage::kConnecting;
  readable_ = writable_ = has_closed_ = false;
  handshake_received_.clear();
  std::string why;
  socket_ = dial(endpoint, &why);
  if (!socket_) last_attempt_ = endpoint + ": " + why;
}

void Connection::leave_slow_attempt(TimePoint now, std::chrono::milliseconds limit) {
  const auto attempts = std::max<int64_t>(3, static_cast<int64_t>(endpoints_->size()));
  if (!socket_) attempted_ = now;  // the next is about to begin
  // The listener may already use this connection after the hello, and would take its end for the loss of this rank.
  if (stage_ == Stage::kAwaitsAnswer || now - attempted_ < limit / static_cast<double>(attempts)) return;
  attempted_ = now;
  give_up("no answer");
}

// A listener that is overloaded or not there yet may answer the next attempt.
bool Connection::give_up(const std::string& why) {
  if (is_accepted()) {
    error_ = why;
    return false;
  }
  last_attempt_ = (*endpoints_)[(attempts_ - 1) % endpoints_->size()] + ": " + why;
  socket_ = Socket();
  return true;
}

// With edge-triggered events, an end that came with the last bytes is not reported again.
bool Connection::can_read_on_after(const Moved& moved) const { return !moved.is_blocked || (has_closed_ && moved.bytes != 0); }

bool Connection::read_exactly(std::byte* into, size_t bytes) {
  while (handshake_received_.size() < bytes && readable_) {
    std::byte piece[128];
    const Span span{piece, std::min(sizeof piece, bytes - handshake_received_.size())};
    const Moved moved = receive_some(socket_, {&span, 1});
    handshake_received_.insert(handshake_received_.end(), piece, piece + moved.bytes);
    if (moved.is_over || !moved.error.empty()) {
      give_up(moved.is_over ? "it was closed during the handshake" : moved.error);
      return false;
    }
    readable_ = can_read_on_after(moved);
  }
  if (handshake_received_.size() < bytes) return false;
  std::memcpy(into, handshake_received_.data(), bytes);
  handshake_received_.clear();
  return true;
}

// A new connection always has room for such a short message.
bool Connection::send_handshake(std::span<const std::byte> bytes) {
  const Span span{const_cast<std::byte*>(bytes.data()), bytes.size()};  // read only
  return send_some(socket_, {&span, 1}).bytes == bytes.size();
}

bool Connection::shake_hands() {
  if (!socket_) {
    if (endpoints_ != nullptr) attempt();
    return static_cast<bool>(socket_);
  }
  switch (stage_) {
    case Stage::kConnecting:
      return end_connecting();
    case Stage::kAwaitsChallenge:
      return receive_challenge();
    case Stage::kAwaitsAnswer:
      return receive_answer();
    case Stage::kAwaitsHello:
      return receive_hello();
    case Stage::kReady:
      break;
  }
  return false;
}

bool Connection::end_connecting() {
  if (!writable_) return false;
  if (const std::string why = outcome_of(socket_); !why.empty()) return give_up(why);
  stage_ = Stage::kAwaitsChallenge;
  return true;
}

bool Connection::receive_challenge() {
  Challenge challenge;
  if (!read_exactly(challenge.data(), challenge.size())) return false;
  const std::optional<Nonce> nonce = read_challenge(challenge);
  if (!nonce) return give_up("what listens there is no rank of horovod");
  challenge_ = *nonce;
  hello_ = hello_to(challenge_, nonce_, who_, terms_.secret);
  if (!send_handshake(hello_)) return give_up("it takes no hello");
  stage_ = Stage::kAwaitsAnswer;
  return true;
}

bool Connection::receive_answer() {
  Answer answer;
  if (!read_exactly(answer.data(), answer.size())) return false;
  if (!are_equal(answer, answer_to(hello_, challenge_, terms_.secret))) return give_up("what listens there is not of this job");
  stage_ = Stage::kReady;
  return true;
}

bool Connection::receive_hello() {
  if (!read_exactly(hello_.data(), hello_.size())) return false;
  const std::optional<Introduction> who = read_hello(hello_, nonce_, terms_.secret);
  const bool is_right =
      who && who->to == who_.rank && who->size == who_.size && who->rank < who->size && who->rank != who_.rank;
  if (!is_right) return give_up("it does not know the secret of this job");
  if (!send_handshake(answer_to(hello_, nonce_, terms_.secret))) return give_up("it takes no answer");
  peer_ = static_cast<int>(who->rank);
  who_.lane = who->lane;
  stage_ = Stage::kReady;
  return true;
}

// ---- frames out ------------------------------------------------------------------------------------------------------

// Messages always have a checksum: ranks compare their settings, including this one, by messages.
uint32_t Connection::checksum_of(FrameKind kind, const std::byte* data, uint64_t bytes) const {
  return terms_.with_checksums || kind != FrameKind::kBulk ? crc32c({data, bytes}) : 0;
}

bool Connection::has_transfers() const {
  return std::any_of(outgoing_.begin(), outgoing_.end(), [](const Frame& frame) { return frame.ticket != 0; });
}

void Connection::send(FrameKind kind, std::vector<std::byte> payload) {
  const FrameHeader header{
      .kind = kind, .checksum = checksum_of(kind, payload.data(), payload.size()), .bytes = payload.size()};
  Frame& frame = outgoing_.emplace_back(Frame{header, std::move(payload), nullptr, 0});
  frame.data = frame.own.data();
}

void Connection::send(FrameHeader header, const std::byte* data, Ticket ticket) {
  header.checksum = checksum_of(header.kind, data, header.bytes);
  outgoing_.push_back({header, {}, data, ticket});
}

size_t Connection::write(ConnectionOwner& owner) {
  size_t total = 0;
  while (!outgoing_.empty() && writable_ && total < kLongestTurn) {
    Span spans[2 * kFramesTogether];
    size_t count = 0, skipped = outgoing_done_;
    for (size_t i = 0; i < std::min(outgoing_.size(), kFramesTogether); ++i) {
      Frame& frame = outgoing_[i];
      const Span parts[] = {{&frame.header, sizeof frame.header}, {const_cast<std::byte*>(frame.data), frame.header.bytes}};
      for (const Span& part : parts) {
        const size_t gone = std::min(skipped, part.bytes);
        skipped -= gone;
        if (gone < part.bytes) spans[count++] = {static_cast<std::byte*>(part.data) + gone, part.bytes - gone};
      }
    }
    const Moved moved = send_some(socket_, {spans, count});
    if (moved.is_blocked) writable_ = false;
    if (!moved.error.empty()) {
      write_error_ = moved.error;  // data that the other side sent before may still be readable
      writable_ = false;
      return total;
    }
    total += moved.bytes;
    outgoing_done_ += moved.bytes;
    while (!outgoing_.empty() && outgoing_done_ >= outgoing_.front().bytes()) {
      outgoing_done_ -= outgoing_.front().bytes();
      const Ticket ticket = outgoing_.front().ticket;
      outgoing_.pop_front();
      if (ticket != 0) owner.on_sent(ticket);
    }
  }
  return total;
}

void Connection::stop() {
  outgoing_.clear();
  outgoing_done_ = 0;
  is_stopped_ = stands_still_ = true;
}

// ---- frames in -------------------------------------------------------------------------------------------------------

// Takes bytes from the read-ahead buffer.
size_t Connection::fill(std::byte* into, size_t bytes) {
  const size_t taken = std::min(bytes, buffered());
  if (taken != 0) std::memcpy(into, buffer_.get() + buffer_begin_, taken);
  buffer_begin_ += taken;
  if (buffer_begin_ == buffer_end_) buffer_begin_ = buffer_end_ = 0;
  return taken;
}

// Returns false if the header is incomplete or its transfer has not been started.
bool Connection::begin_frame(ConnectionOwner& owner) {
  if (buffered() < sizeof header_) return false;
  std::memcpy(&header_, buffer_.get() + buffer_begin_, sizeof header_);
  place_ = nullptr;
  if (header_.kind == FrameKind::kBulk) {
    place_ = owner.place_for(*this, header_);
    if (place_ == nullptr) {
      stands_still_ = true;
      return false;
    }
  } else if (header_.kind < FrameKind::kMessage || header_.kind > FrameKind::kGoodbye || header_.bytes > kLongestMessage) {
    throw InternalError(Said::frame_wrong,
                        {.ranks = {static_cast<int>(who_.to)},
                         .others = {{"frame_kind", static_cast<uint32_t>(header_.kind)}, {"bytes", header_.bytes}}});
  }
  fill(reinterpret_cast<std::byte*>(&header_), sizeof header_);
  payload_.clear();
  arrived_ = 0;
  in_frame_ = true;
  return true;
}

void Connection::end_frame(ConnectionOwner& owner) {
  in_frame_ = false;
  const std::byte* data = place_ != nullptr ? place_ : payload_.data();
  if (checksum_of(header_.kind, data, header_.bytes) != header_.checksum) {
    throw InternalError(Said::checksum_wrong, {.others = {{"bytes", header_.bytes}}});
  }
  if (header_.kind == FrameKind::kBulk) return owner.on_bulk(*this, header_);
  owner.on_frame(*this, header_.kind, std::move(payload_));
  payload_ = {};
}

// Takes buffered bytes for the frame. Returns the memory for the rest of it, which for a message grows in limited steps.
Span Connection::lacking() {
  const uint64_t rest = header_.bytes - arrived_;
  size_t wanted = place_ != nullptr ? rest : std::min<uint64_t>(rest, kLongestStep);
  if (place_ == nullptr) payload_.resize(arrived_ + wanted);
  std::byte* into = (place_ != nullptr ? place_ : payload_.data()) + arrived_;
  const size_t taken = fill(into, wanted);
  arrived_ += taken;
  return {into + taken, wanted - taken};
}

// Reads the rest of the frame into its place, and what follows into the buffer.
size_t Connection::receive(const Span& known) {
  if (known.bytes == 0 && buffer_begin_ != 0) {  // move the part of a header to the front
    std::memmove(buffer_.get(), buffer_.get() + buffer_begin_, buffered());
    buffer_end_ -= buffer_begin_;
    buffer_begin_ = 0;
  }
  const Span spans[] = {known, {buffer_.get() + buffer_end_, kBuffer - buffer_end_}};
  const Moved moved = receive_some(socket_, known.bytes == 0 ? std::span(spans).last(1) : std::span(spans));
  readable_ = can_read_on_after(moved);
  is_over_ = moved.is_over;
  error_ = moved.error;
  const size_t placed = std::min(moved.bytes, known.bytes);
  arrived_ += placed;
  buffer_end_ += moved.bytes - placed;
  return moved.bytes;
}

size_t Connection::read(ConnectionOwner& owner) {
  size_t total = 0;
  while (!stands_still_ && !is_over_ && error_.empty() && total < kLongestTurn) {
    if (!in_frame_ && !begin_frame(owner)) {
      if (!readable_ || stands_still_) break;
      total += receive({});
      continue;
    }
    const Span known = lacking();
    if (arrived_ == header_.bytes) {
      end_frame(owner);
    } else if (known.bytes != 0) {
      if (!readable_) break;
      total += receive(known);
    }
  }
  return total;
}

}  // namespace hvd
