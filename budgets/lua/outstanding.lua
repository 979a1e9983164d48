-- The names of the buckets of all limits, by the limits' numbers.
local function names_of(layouts, rows)
  local names, n = {}, 0
  for b = 2, #layouts, 3 do
    local on_board, at = cmsgpack.unpack(layouts[b]), 0
    while n < layouts[b + 1] do
      n = n + 1
      if decode('<B', rows, FIRST_ROW + (n - 1) * ROW_BYTES) ~= CALLS then
        at = at + 1
        names[n] = on_board[at]
      end
    end
  end
  return names
end

-- By bucket: what calls that run have reserved; and what flows back of leases that have run out, once the next
-- reservation closes them.
local function outstanding()
  local running, back = {}, {}
  for _, id in ipairs(call('ZRANGE', leases, 0, -1)) do
    local asked, _, layouts, rows, closed = opened(call('HGET', held, id))
    local late = asked and tonumber(call('ZSCORE', leases, id)) <= now_us
    for n, name in pairs(asked and not closed and names_of(layouts, rows) or {}) do
      local _, _, place = decode(ROW, rows, FIRST_ROW + (n - 1) * ROW_BYTES)
      if late then
        back[name] = (back[name] or 0) + took(asked, place) - kept(asked, place, rows, layouts[#layouts], n)
      else
        running[name] = (running[name] or 0) + took(asked, place)
      end
    end
  end
  return running, back
end
