-- By bucket: what calls that run have reserved; and what flows back of leases that have run out, once the next
-- reservation closes them.
local function outstanding()
  local running, back = {}, {}
  for _, id in ipairs(call('ZRANGE', leases, 0, -1)) do
    local asked, names, rows, closed = opened(call('HGET', held, id))
    local late = asked and not closed and tonumber(call('ZSCORE', leases, id)) <= now_us
    for n = 1, asked and not closed and #names or 0 do
      local kind, _, place = decode(ROW, rows, FIRST_ROW + (n - 1) * ROW_BYTES)
      local name = names[n]
      if kind ~= CALLS and late then
        back[name] = (back[name] or 0) + took(asked, place) - kept(asked, place, rows, #names, n)
      elseif kind ~= CALLS then
        running[name] = (running[name] or 0) + took(asked, place)
      end
    end
  end
  return running, back
end
