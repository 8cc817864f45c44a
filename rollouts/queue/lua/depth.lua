-- Returns how many keys are in each place, and for how many milliseconds the oldest has been ready.

local oldest = call('ZRANGE', ready, 0, 0, 'WITHSCORES')
return {
    call('ZCARD', ready), call('ZCARD', processing), call('ZCARD', dirty), call('ZCARD', delayed),
    oldest[2] and text(math.max(0, now - oldest[2])) or 0,
}
