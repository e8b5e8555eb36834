-- Talking to the server: one function for every command, errors told once.
local M = {}

local START_MS = 10000

local function found()
  return vim.lsp.get_clients({ name = "outpost", bufnr = 0 })[1] or vim.lsp.get_clients({ name = "outpost" })[1]
end

function M.get()
  local config = vim.lsp.config.outpost
  local program = config and type(config.cmd) == "table" and config.cmd[1]
  if not found() and program and vim.fn.executable(program) == 1 and vim.bo.buftype == "" then
    -- The server may still be starting: a command that is typed at once is as good as one that is typed later.
    vim.wait(START_MS, function() return found() ~= nil end, 20)
  end
  local client = found()
  if not client then
    vim.notify(
      "outpost: no server for this buffer; call vim.lsp.enable('outpost'), or see :checkhealth outpost",
      vim.log.levels.WARN
    )
  end
  return client
end

-- Run a command of the server, of this buffer's unless another is named. `done(result)` is called on success; a fault is
-- shown and ends it.
function M.command(name, argument, done, of)
  local client = of or M.get()
  if not client then
    return
  end
  local params = { command = "outpost." .. name, arguments = { argument or vim.empty_dict() } }
  client:request("workspace/executeCommand", params, function(fault, result)
    if fault then
      vim.notify("outpost: " .. fault.message, vim.log.levels.ERROR)
    elseif done then
      done(result)
    end
  end, 0)
end

return M
