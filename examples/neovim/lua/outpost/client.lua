-- Talking to the server: one function for every command, errors told once.
local M = {}

function M.get()
  local client = vim.lsp.get_clients({ name = "outpost", bufnr = 0 })[1] or vim.lsp.get_clients({ name = "outpost" })[1]
  if not client then
    vim.notify("outpost: no server for this buffer; call vim.lsp.enable('outpost')", vim.log.levels.WARN)
  end
  return client
end

-- Run a command of the server. `done(result)` is called on success; a fault is shown and ends it.
function M.command(name, argument, done)
  local client = M.get()
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
