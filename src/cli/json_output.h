// JSON as the commands print it: one line, numbers in their shortest exact form.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace quire {

// Doubles in the shortest form that reads back as the same double; what is not finite becomes null.
[[nodiscard]] std::string to_json(const boost::json::value& value);

// A float as the double whose shortest form is that of the float: 0.1f prints as 0.1.
[[nodiscard]] double json_float(float value);

}  // namespace quire
