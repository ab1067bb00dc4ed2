// A buffer of plain values that grows, and is not filled with zeros first.
//
// Portable C++17. Thread safety: its owner's. Ownership: its memory. Without memory: std::bad_alloc.
#ifndef ORDSTREAM_GROWING_HPP
#define ORDSTREAM_GROWING_HPP
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace ord {
template <typename T>
class Growing {
  public:
    Growing() = default;
    Growing(Growing&& other) noexcept : data_(other.data_), size_(other.size_), room_(other.room_) {
        other.data_ = nullptr;
        other.size_ = other.room_ = 0;
    }
    Growing(const Growing&) = delete;
    Growing& operator=(const Growing&) = delete;
    ~Growing() { std::free(data_); }
    T* more(int64_t n) {
        if (size_ + n > room_) reserve(std::max(size_ + n, 2 * room_));
        size_ += n;
        return data_ + size_ - n;
    }
    void reserve(int64_t n) {
        if (n <= room_) return;
        T* larger = static_cast<T*>(std::realloc(data_, static_cast<size_t>(n) * sizeof(T)));
        if (larger == nullptr) throw std::bad_alloc();
        data_ = larger;
        room_ = n;
    }
    void add(T value) { *more(1) = value; }
    void add(const T* values, int64_t n) {
        if (n) std::memcpy(more(n), values, static_cast<size_t>(n) * sizeof(T));
    }
    void add_times(T value, int64_t n) {
        if (n) std::memset(more(n), value, static_cast<size_t>(n) * sizeof(T));
    }
    T* data() const { return data_; }
    int64_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T back() const { return data_[size_ - 1]; }

  private:
    T* data_ = nullptr;
    int64_t size_ = 0, room_ = 0;
};
}  // namespace ord
#endif
